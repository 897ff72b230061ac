/* How spans belong together: which call launched which work, and what encloses what. */
(function () {
  "use strict";
  var JUST_INSIDE = 1e-7; /* ms: a moment at which a span that begins there is open */

  /* `spans`: as spans.js decodes them. Spans are their indices. */
  window.traceopt.spanRelations = function (spans) {
    var start = spans.start, end = spans.end, duration = spans.duration;

    function isStream(index) {
      return index >= spans.streamFirst && index < spans.firstStall;
    }
    function isThread(index) {
      return spans.lanes[spans.laneOf[index]].kind === "thread";
    }
    function isPython(index) {
      return spans.category[index] >= 0 && spans.view.categories[spans.category[index]][0] === "python" && isThread(index);
    }
    /* When and where the work of a stream was launched, null if the file does not say: {delay, time, lane, span, around}.
       `span` is the call if it is in the table, else -1; `around` are the spans that were open then. */
    function launchOf(index) {
      if (!isStream(index) || !spans.launchDelay[index - spans.streamFirst]) {
        return null;
      }
      var delay = (spans.launchDelay[index - spans.streamFirst] - 1) / 1e6;
      var lane = spans.launchLane[index - spans.streamFirst] - 1;
      var at = start[index] - delay;
      var around = lane < 0 ? [] : spans.openAt(lane, at + JUST_INSIDE);
      return { delay: delay, time: at, lane: lane, span: around.length ? around[around.length - 1] : -1, around: around };
    }
    /* The spans around a span of a thread, or around the launch of the work of a stream, outermost first. */
    function stackOf(index) {
      if (isThread(index)) {
        return spans.openAt(spans.laneOf[index], start[index] + Math.min(JUST_INSIDE, duration[index] / 2)).filter(function (other) {
          return other !== index && end[other] >= end[index] - 1e-6 && other < index;
        });
      }
      var launch = launchOf(index);
      return launch ? launch.around : [];
    }
    /* The innermost operator of a stack that has shapes. */
    function nearestOperator(stack) {
      return stack.filter(function (index) {
        return spans.view.categories[spans.category[index]][0] === "cpu" && spans.detail[index] >= 0;
      }).pop();
    }
    /* The work of streams that was launched while a span of a thread was open, in order of the table. */
    function launchedBy(index) {
      var work = [];
      if (index >= 0 && isThread(index)) {
        for (var other = spans.streamFirst; other < spans.firstStall; other++) {
          var delay = spans.launchDelay[other - spans.streamFirst];
          if (delay && spans.launchLane[other - spans.streamFirst] - 1 === spans.laneOf[index]) {
            var at = start[other] - (delay - 1) / 1e6;
            if (at > start[index] - 5e-7 && at < Math.max(end[index], start[index] + 1e-6)) {
              work.push(other);
            }
          }
        }
      }
      return work;
    }
    /* The time of the spans directly below a span of a thread. */
    function timeBelow(index) {
      var lane = spans.lanes[spans.laneOf[index]];
      var inside = 0, until = start[index];
      for (var other = index + 1; other < lane.first + lane.count && start[other] < end[index]; other++) {
        if (start[other] >= until - 1e-9) {
          until = Math.min(end[other], end[index]);
          inside += until - start[other];
        }
      }
      return inside;
    }
    /* The spans of the same name and lane that begin in a step: {count, total}. */
    function sameName(index, step) {
      var count = 0, total = 0;
      for (var other = 0; other < spans.firstStall; other++) {
        if (spans.name[other] === spans.name[index] && spans.laneOf[other] === spans.laneOf[index]
            && start[other] >= step.start && start[other] < step.end) {
          count++;
          total += duration[other];
        }
      }
      return { count: count, total: total };
    }
    return {
      isStream: isStream, isThread: isThread, isPython: isPython, launchOf: launchOf, stackOf: stackOf,
      nearestOperator: nearestOperator, launchedBy: launchedBy, timeBelow: timeBelow, sameName: sameName,
    };
  };
})();
