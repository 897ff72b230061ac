/* The sums of the range that is chosen in the timeline: how long the GPU works in it, and on what the time goes. */
(function () {
  "use strict";

  /* `view`: of view.js. */
  window.traceopt.spanSums = function (view) {
    function isGap(lane) {
      return lane.kind === "stalls" || lane.kind === "idle";
    }
    function clipped(index) {
      return Math.max(0, Math.min(view.spans.end[index], view.range.to) - Math.max(view.spans.start[index], view.range.from));
    }
    /* By name {name, count, total}, the largest first: the part of each shown span that lies in the range, on threads less
       that of the spans below it. */
    function sumsOf(isMeant) {
      var spans = view.spans, sums = {};
      spans.lanes.filter(isMeant).forEach(function (lane) {
        var open = [];
        for (var index = lane.first; index < lane.first + lane.count && spans.start[index] < view.range.to; index++) {
          var part = clipped(index);
          if (!part || view.layout.rowOf[index] < 0) {
            continue;
          }
          var name = spans.name[index];
          var sum = sums[name] = sums[name] || { name: name, count: 0, total: 0 };
          sum.count++;
          sum.total += part;
          if (lane.kind === "thread") {
            while (open.length && spans.end[open[open.length - 1]] <= spans.start[index] + 1e-9) {
              open.pop();
            }
            if (open.length) {
              sums[spans.name[open[open.length - 1]]].total -= part;
            }
            open.push(index);
          }
        }
      });
      return Object.values(sums).sort(function (a, b) { return b.total - a.total; });
    }
    /* The time in the range in which any stream works. */
    function busyTime() {
      var spans = view.spans, inside = [];
      for (var index = spans.streamFirst; index < spans.firstStall; index++) {
        if (clipped(index)) {
          inside.push(index);
        }
      }
      inside.sort(function (a, b) { return spans.start[a] - spans.start[b]; });
      var busy = 0, until = view.range.from;
      inside.forEach(function (work) {
        var last = Math.min(spans.end[work], view.range.to);
        busy += Math.max(0, last - Math.max(spans.start[work], until));
        until = Math.max(until, last);
      });
      return busy;
    }
    /* {title, sums} of each kind of lanes that has any. */
    function groups() {
      return [
        { title: view.spans.view.idle + ", by main cause", sums: sumsOf(isGap) },
        { title: "GPU work", sums: sumsOf(function (lane) { return lane.kind === "stream"; }) },
        { title: "Threads, self time", sums: sumsOf(function (lane) { return lane.kind === "thread"; }) },
      ].filter(function (group) { return group.sums.length; });
    }
    return { MOST: 8, busyTime: busyTime, groups: groups, isGap: isGap };
  };
})();
