/* The bars of the parts of a step. */
(function () {
  "use strict";
  var tools = window.traceopt; /* of page/shared.js */
  var one = tools.one, all = tools.all;

  /* The parts of the step: the pointer and the focus show what a part is, and a click or Enter keeps it open. */
  function answerParts(bars) {
    var shown = null;
    var kept = false;
    var leaving = 0;
    function answerOf(part) {
      return document.getElementById("answer-" + part.dataset.answer);
    }
    function hide() {
      clearTimeout(leaving);
      if (shown) {
        answerOf(shown).hidden = true;
        shown.classList.remove("chosen");
      }
      shown = null;
      kept = false;
    }
    function show(part, keep) {
      if (!answerOf(part) || (kept && !keep)) {
        return;
      }
      hide();
      shown = part;
      kept = keep;
      part.classList.add("chosen");
      var answer = answerOf(part);
      answer.hidden = false;
      var around = bars.getBoundingClientRect();
      var place = part.getBoundingClientRect();
      var middle = place.left + place.width / 2 - around.left - answer.offsetWidth / 2;
      answer.style.left = Math.max(0, Math.min(middle, around.width - answer.offsetWidth)) + "px";
      answer.style.top = place.bottom - around.top + 6 + "px";
    }
    function leave() {
      clearTimeout(leaving);
      leaving = setTimeout(function () {
        if (!kept) {
          hide();
        }
      }, 200);
    }
    all("[data-answer]", bars).forEach(function (part) {
      part.onpointerenter = part.onfocus = function () {
        show(part, false);
      };
      part.onpointerleave = leave;
      part.onblur = leave;
      part.onclick = function (event) {
        event.preventDefault();
        show(part, true);
        var link = one("a", answerOf(part) || part);
        if (link && event.detail === 0) {
          link.focus(); /* the key Enter */
        }
      };
    });
    all(".answer", bars).forEach(function (answer) {
      answer.onpointerenter = function () {
        clearTimeout(leaving);
      };
      answer.onpointerleave = leave;
    });
    addEventListener("keydown", function (event) {
      if (event.key === "Escape" && shown) {
        var part = shown;
        var back = answerOf(part).contains(document.activeElement);
        hide();
        if (back) {
          part.focus();
          hide();
        }
      }
    });
    addEventListener("click", function (event) {
      if (shown && (!event.target.closest("[data-answer], .answer") || event.target.closest(".answer a"))) {
        hide();
      }
    });
  }
  all("#parts").forEach(answerParts);
})();
