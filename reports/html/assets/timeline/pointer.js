/* The pointer on the timeline: it moves, zooms, chooses spans, ranges and steps, and names what is below it. */
(function () {
  "use strict";
  var tools = window.traceopt; /* of page/shared.js */
  var SIZES = tools.SPAN_SIZES; /* of layout.js */
  var STILL = 3; /* pixels: a pointer that moves less has clicked */
  var NEAR = 3; /* pixels from a narrow span */
  var LEAST_APART = 20; /* pixels between two fingers */
  var TIP_LETTERS = 200;

  /* `view`: of view.js. `actions`: select(span, seen), chooseRange(from, to), goToStep(number), showClose(true). */
  tools.spanPointer = function (canvas, view, actions) {
    var box = document.getElementById("span-viewer");
    var tip = document.getElementById("span-tip");
    var pointers = {}; /* where each was last, by its id */
    var moved = 0; /* pixels since it went down */
    var anchor = null; /* ms, where a range begins */

    /* A place on the canvas, and its time. */
    function placeOf(event) {
      var area = canvas.getBoundingClientRect();
      var x = event.clientX - area.left;
      return { x: x, y: event.clientY - area.top, ms: view.msAt(x) };
    }
    /* The span under the pointer, -1 for none; among narrow ones the closest. */
    function hit(place) {
      var row = place.y < view.layout.axis || place.x < view.layout.gutter ? null : view.layout.rowAt(place.y);
      if (!row) {
        return -1;
      }
      var start = view.spans.start, end = view.spans.end, at = place.ms;
      var slack = view.msPerPixel() * NEAR;
      var best = -1, distance = slack;
      for (var i = view.layout.firstReaching(row, at - slack); i < row.spans.length && start[row.spans[i]] <= at + slack; i++) {
        var index = row.spans[i];
        var away = at < start[index] ? start[index] - at : at > end[index] ? at - end[index] : 0;
        if (away < distance || (away === 0 && distance === 0)) {
          best = index;
          distance = away;
        }
      }
      return best;
    }
    /* The number of the step whose name is under the pointer, -1 for none. */
    function stepUnder(place) {
      return place.y >= SIZES.ticks && place.y < view.layout.axis ? view.stepAt(place.ms) : -1;
    }
    function showTip(event, under) {
      tip.hidden = under < 0;
      if (under >= 0) {
        var area = box.getBoundingClientRect(), spans = view.spans;
        tip.textContent = tools.cutText(spans.view.names[spans.name[under]], TIP_LETTERS) + "\n" + tools.time(spans.duration[under]);
        tip.style.top = event.clientY - area.top + 18 + "px";
        tip.style.left = Math.max(0, Math.min(event.clientX - area.left + 12, area.width - tip.offsetWidth)) + "px";
      }
    }
    function hover(event, place) {
      var under = hit(place);
      showTip(event, event.pointerType === "mouse" ? under : -1);
      var onAxis = place.y < view.layout.axis || event.shiftKey;
      canvas.style.cursor = stepUnder(place) >= 0 ? "pointer" : onAxis ? "col-resize" : under < 0 ? "grab" : "pointer";
    }
    canvas.onpointerleave = function () {
      tip.hidden = true;
    };
    /* A drag with Shift, or along the axis, chooses a range; a click on the name of a step chooses it. */
    canvas.onpointerdown = function (event) {
      var place = placeOf(event);
      pointers[event.pointerId] = { x: event.clientX, y: event.clientY };
      moved = 0;
      tip.hidden = true;
      anchor = place.x >= view.layout.gutter && (event.shiftKey || place.y < view.layout.axis) ? place.ms : null;
      canvas.setPointerCapture(event.pointerId);
    };
    canvas.onpointermove = function (event) {
      var before = pointers[event.pointerId], place = placeOf(event);
      if (!before) {
        hover(event, place);
        return;
      }
      var others = Object.keys(pointers).filter(function (id) { return id !== String(event.pointerId); });
      var change = event.clientX - before.x;
      moved += Math.abs(change) + Math.abs(event.clientY - before.y);
      if (anchor !== null && !others.length) {
        if (moved > STILL) {
          actions.chooseRange(anchor, Math.max(view.from, Math.min(view.to, place.ms)));
        }
      } else if (others.length === 1) {
        var other = pointers[others[0]].x;
        var factor = Math.max(LEAST_APART, Math.abs(before.x - other)) / Math.max(LEAST_APART, Math.abs(event.clientX - other));
        view.zoom(factor, view.msAt((event.clientX + other) / 2 - canvas.getBoundingClientRect().left));
      } else if (moved > STILL) {
        view.pan(-change / (view.layout.width - view.layout.gutter));
      }
      pointers[event.pointerId] = { x: event.clientX, y: event.clientY };
    };
    canvas.onpointerup = function (event) {
      delete pointers[event.pointerId];
      if (moved <= STILL) {
        var place = placeOf(event), step = stepUnder(place);
        if (step >= 0) {
          actions.goToStep(step);
        } else {
          actions.select(hit(place), true);
        }
      }
      anchor = null;
    };
    canvas.onpointercancel = function (event) {
      delete pointers[event.pointerId];
    };
    canvas.ondblclick = function () {
      if (view.selected >= 0) {
        actions.showClose(true);
      }
    };
    canvas.addEventListener(
      "wheel",
      function (event) {
        var isAcross = event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY);
        if (event.ctrlKey || event.metaKey) {
          view.zoom(Math.exp(event.deltaY / 300), placeOf(event).ms);
        } else if (isAcross) {
          view.pan((event.deltaX || event.deltaY) / (view.layout.width - view.layout.gutter));
        } else {
          return; /* the threads scroll */
        }
        event.preventDefault();
      },
      { passive: false }
    );
  };
})();
