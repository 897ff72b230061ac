/* The cards of the fixes: which are shown, and which are open. */
(function () {
  "use strict";
  var tools = window.traceopt; /* of page/shared.js */
  var one = tools.one, all = tools.all, chosen = tools.chosen, remember = tools.remember;

  /* Fixes by family, effort and risk. */
  var choices = all("[data-fix-filter]");
  function filterFixes() {
    var cards = all(".fixes > li");
    var left = 0;
    cards.forEach(function (card) {
      card.hidden = choices.some(function (choice) {
        return choice.value && card.dataset[choice.dataset.fixFilter] !== choice.value;
      });
      left += card.hidden ? 0 : 1;
    });
    all("ol.fixes, ul.fixes").forEach(function (list) {
      var heading = list.previousElementSibling;
      if (heading.tagName === "H3") {
        heading.hidden = !all(":scope > li:not([hidden])", list).length;
      }
    });
    var status = document.getElementById("fixes-count");
    status.textContent = left === cards.length ? "" : left ? left + " of " + cards.length + " shown" : "No fix matches all of these.";
  }
  choices.forEach(function (choice) {
    choice.onchange = function () {
      filterFixes();
      remember("fixes." + choice.dataset.fixFilter, choice.value);
    };
    choice.value = chosen.get("fixes." + choice.dataset.fixFilter) || "";
    choice.selectedIndex = Math.max(0, choice.selectedIndex);
  });
  if (choices.length) {
    filterFixes();
  }

  /* Print has the plan open, and neither the other cards nor the sections that are closed at first. */
  var shut = [];
  addEventListener("beforeprint", function () {
    shut = all("details.fix.planned:not([open])");
    shut.forEach(function (details) {
      details.open = true;
    });
  });
  addEventListener("afterprint", function () {
    shut.forEach(function (details) {
      details.open = false;
    });
  });

  var openAll = one("#openall");
  if (openAll) {
    openAll.onclick = function () {
      var open = openAll.textContent === "Open all";
      all("details.fix").forEach(function (details) {
        details.open = open;
      });
      openAll.textContent = open ? "Close all" : "Open all";
    };
  }
})();
