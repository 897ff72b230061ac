/* The choice of a rank. The document sends "choose-rank". */
(function () {
  "use strict";
  var tools = window.traceopt; /* of page/shared.js */
  var all = tools.all;

  var rankChoices = all("[data-rank-choice]");
  rankChoices.forEach(function (choice) {
    choice.onchange = function () {
      tools.rank = Number(choice.value);
      rankChoices.forEach(function (other) {
        other.value = choice.value;
      });
      all("[data-view]").forEach(function (view) {
        view.hidden = view.dataset.view !== choice.value;
      });
      document.dispatchEvent(new CustomEvent("choose-rank"));
    };
  });
})();
