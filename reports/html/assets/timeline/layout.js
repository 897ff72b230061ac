/* Where the spans of the timeline stand: lanes one below the other, and in a thread a row for each level of nesting. */
(function () {
  "use strict";
  var tools = window.traceopt; /* of page/shared.js */
  var SIZES = tools.SPAN_SIZES = { /* pixels */
    ticks: 26, stepNames: 18, tall: 22, low: 16, header: 18, laneGap: 8,
    named: 30, /* a lane's name beside its rows */
    leastLabel: 28,
  };
  var WIDE = 700; /* from this width on, names of lanes stand beside them */
  var GUTTER = 158;
  var LEAST_HEIGHT = 120;
  var MOST_PINNED = 0.6; /* of the height: the lanes that stay while the threads scroll */
  var ORDER = ["stalls", "idle", "stream", "activity", "thread"]; /* kinds of lanes: the overview comes before the nested events */

  /* `spans`: as spans.js decodes them. `scroller`: the element in which the threads scroll. `isHidden(span)`: whether a
     span of a thread has no row. The layout that is made:

     width, height     of the canvas
     gutter            the width beside the rows, for names of lanes; 0 on a narrow screen
     axis              the height above the rows
     bottom            of the last lane, if nothing scrolled
     pinnedBottom      where the part begins that scrolls
     lanes             {kind, name, detail, top, bottom, pinned, rows}; `pinned` lanes do not scroll
     rows              {lane, spans, reach, y, height} from top to bottom; `spans` in order of their start; `reach`: how far
                       those up to each one reach, since activities of a thread may lie within a longer one
     rowOf             of every span the number of its row, -1 for none */
  tools.layOutSpans = function (spans, scroller, isHidden) {
    var width = scroller.clientWidth;
    var gutter = width > WIDE ? GUTTER : 0;
    var axis = spans.view.steps.length > 1 ? SIZES.ticks + SIZES.stepNames : SIZES.ticks;
    var rowOf = new Int32Array(spans.start.length).fill(-1);
    var rows = [], lanes = [];
    var y = axis + 2;
    ORDER.forEach(function (kind) {
      spans.lanes.forEach(function (lane) {
        if (lane.kind === kind) {
          add(lane);
        }
      });
    });
    var height = Math.max(LEAST_HEIGHT, Math.min(y, Math.round(innerHeight * (gutter ? 0.7 : 0.55))));
    var pinnedBottom = pin(y > height);

    function add(lane) {
      var levels = levelsOf(lane);
      if (!levels.length) {
        return;
      }
      var placed = { kind: lane.kind, name: lane.name, detail: lane.detail, top: y, bottom: 0, pinned: false, rows: [] };
      y += gutter ? 0 : SIZES.header;
      levels.forEach(function (level) {
        level.forEach(function (span) {
          rowOf[span] = rows.length;
        });
        var tall = lane.kind === "thread" ? SIZES.low : SIZES.tall;
        var row = { lane: placed, spans: Int32Array.from(level), reach: reachOf(level), y: y, height: tall };
        placed.rows.push(row);
        rows.push(row);
        y += tall + 1;
      });
      y = Math.max(y, gutter ? placed.top + SIZES.named : 0) + SIZES.laneGap;
      placed.bottom = y;
      lanes.push(placed);
    }
    /* The spans of a lane by their level of nesting. */
    function levelsOf(lane) {
      var open = [], levels = [];
      for (var span = lane.first; span < lane.first + lane.count; span++) {
        if (lane.kind === "thread" && isHidden(span)) {
          continue;
        }
        var level = 0;
        if (lane.kind !== "activity") {
          while (level < open.length && open[level] > spans.start[span] + 1e-9) {
            level++;
          }
          open.length = level;
          open.push(Math.max(spans.end[span], spans.start[span] + 1e-6));
        }
        levels[level] = levels[level] || [];
        levels[level].push(span);
      }
      return levels;
    }
    function reachOf(level) {
      var reach = new Float64Array(level.length);
      level.forEach(function (span, i) {
        reach[i] = Math.max(spans.end[span], i ? reach[i - 1] : -Infinity);
      });
      return reach;
    }
    /* While the threads scroll, the lanes above them stay in view: all that fit, the GPU's first. */
    function pin(scrolls) {
      var bottom = axis, room = scrolls;
      lanes.forEach(function (lane) {
        room = room && lane.kind !== "thread" && lane.bottom <= axis + (height - axis) * MOST_PINNED;
        lane.pinned = room;
        bottom = room ? lane.bottom : bottom;
      });
      return bottom;
    }

    /* Where a row is on the canvas, and whether it is in view. */
    function screenY(row) {
      return row.lane.pinned ? row.y : row.y - scroller.scrollTop;
    }
    function isSeen(row) {
      var top = screenY(row);
      return row.lane.pinned || (top + row.height > pinnedBottom && top < height);
    }
    function rowAt(pixel) {
      return rows.find(function (row) {
        var top = screenY(row);
        return row.lane.pinned === pixel < pinnedBottom && pixel >= top - 1 && pixel < top + row.height + 1;
      });
    }
    /* The place in a row before which no span reaches a time, and before which none starts at or after it. */
    function firstReaching(row, time) {
      return firstPlace(row.reach.length, function (place) { return row.reach[place] >= time; });
    }
    function firstFrom(row, time) {
      return firstPlace(row.spans.length, function (place) { return spans.start[row.spans[place]] >= time; });
    }
    return {
      width: width, height: height, gutter: gutter, axis: axis, bottom: y, pinnedBottom: pinnedBottom,
      lanes: lanes, rows: rows, rowOf: rowOf,
      screenY: screenY, isSeen: isSeen, rowAt: rowAt, firstReaching: firstReaching, firstFrom: firstFrom,
    };
  };

  /* The first of so many places from which on something is so. */
  function firstPlace(count, isSo) {
    var low = 0, high = count;
    while (low < high) {
      var middle = (low + high) >> 1;
      if (isSo(middle)) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    return low;
  }
})();
