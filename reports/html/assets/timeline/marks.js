/* What stands over the bars of the timeline: the axis, the chosen span with its arrows, and the chosen range. */
(function () {
  "use strict";
  var tools = window.traceopt; /* of page/shared.js */
  var SIZES = tools.SPAN_SIZES; /* of layout.js */
  var MOST_ARROWS = 200;
  var TICK_ROOM = 110; /* pixels from one time of the axis to the next, at least */

  /* `brush`: of painting.js. `view`: of view.js. */
  tools.spanMarks = function (brush, view) {
    var pen = brush.pen, colors = brush.colors;

    /* The chosen span */

    /* Draws the frame and the arrows of the chosen span. Gives the words that lead to the other end of its first arrow,
       "" if that is in view. */
    function drawSelection() {
      var layout = view.layout, index = view.selected;
      if (index < 0 || layout.rowOf[index] < 0) {
        return "";
      }
      var row = layout.rows[layout.rowOf[index]];
      var left = Math.max(layout.gutter, view.x(view.spans.start[index]));
      var right = view.x(view.spans.end[index]);
      var arrows = arrowsOf(index);
      arrows.forEach(drawArrow);
      if (left <= layout.width && right >= layout.gutter) {
        brush.within(row.lane, function () {
          pen.strokeStyle = colors.ink;
          pen.lineWidth = 2;
          pen.strokeRect(left - 1, layout.screenY(row) - 1, Math.max(3, Math.min(layout.width, right) - left) + 1, row.height + 2);
        });
      }
      return arrows.length ? drawHint(arrows[0]) : "";
    }
    /* From the call to the work on a stream: of the chosen work, or of all that the chosen span launched. An arrow is
       {from, to, call, work}: ms, and the rows of both ends. */
    function arrowsOf(index) {
      var relations = view.relations, rowOf = view.layout.rowOf;
      var work = relations.isStream(index) ? [index] : relations.launchedBy(index).slice(0, MOST_ARROWS);
      return work.map(function (launched) {
        var launch = relations.launchOf(launched);
        return launch && launch.span >= 0 && rowOf[launch.span] >= 0 && rowOf[launched] >= 0
          ? {
            from: launch.time, to: view.spans.start[launched],
            call: view.layout.rows[rowOf[launch.span]], work: view.layout.rows[rowOf[launched]],
          }
          : null;
      }).filter(Boolean);
    }
    function drawArrow(arrow) {
      var layout = view.layout;
      var x1 = view.x(arrow.from), y1 = arrowY(arrow.call);
      var x2 = view.x(arrow.to), y2 = arrowY(arrow.work);
      pen.save();
      pen.beginPath();
      pen.rect(layout.gutter, layout.axis, layout.width, layout.height);
      pen.clip();
      pen.strokeStyle = pen.fillStyle = colors.ink;
      pen.lineWidth = 1.5;
      pen.beginPath();
      pen.moveTo(x1, y1);
      pen.bezierCurveTo((x1 + x2) / 2, y1, (x1 + x2) / 2, y2, x2, y2);
      pen.stroke();
      pen.fillRect(x1 - 2.5, y1 - 2.5, 5, 5);
      pen.beginPath(); /* the head */
      pen.moveTo(x2 + 1, y2);
      pen.lineTo(x2 - 6, y2 - 4);
      pen.lineTo(x2 - 6, y2 + 4);
      pen.fill();
      pen.restore();
    }
    function arrowY(row) {
      var layout = view.layout, top = row.lane.pinned ? layout.axis : layout.pinnedBottom;
      return Math.max(top, Math.min(layout.height, layout.screenY(row) + row.height / 2));
    }
    /* Where the other end of an arrow is that leaves the view, at the edge behind which it lies. */
    function drawHint(arrow) {
      var layout = view.layout, toCall = view.relations.isStream(view.selected);
      var at = view.x(toCall ? arrow.from : arrow.to), row = toCall ? arrow.call : arrow.work;
      var hidden = layout.isSeen(row) ? "" : layout.screenY(row) < layout.pinnedBottom ? "▴" : "▾";
      var sign = at < layout.gutter ? "◂" : at > layout.width ? "▸" : hidden;
      if (!sign) {
        return "";
      }
      var apart = tools.time(Math.abs(arrow.to - arrow.from));
      var text = sign + " " + (toCall ? "launched " + apart + " earlier" : "runs " + apart + " later") + (layout.gutter ? ": press L" : "");
      pen.font = brush.BOLD;
      var wide = pen.measureText(text).width + 12;
      var left = Math.max(layout.gutter + 3, Math.min(layout.width - wide - 3, at - wide / 2));
      var top = Math.max(layout.axis + 3, Math.min(layout.height - 21, arrowY(row) - 9));
      pen.fillStyle = colors.ink;
      pen.fillRect(left, top, wide, 18);
      pen.fillStyle = colors.card;
      pen.fillText(text, left + 6, top + 9.5);
      return text;
    }

    /* The axis */

    /* Round times since the start of the chosen step; above them the part of it that is shown, below them the steps. */
    function drawAxis() {
      var layout = view.layout, zero = view.chosenStep().start;
      var rough = (view.to - view.from) / Math.max(3, (layout.width - layout.gutter) / TICK_ROOM);
      var unit = Math.pow(10, Math.floor(Math.log10(rough)));
      var gap = [1, 2, 5, 10].map(function (factor) { return factor * unit; }).find(function (one) { return one >= rough; });
      var long = view.to - zero >= tools.LONG; /* all ticks have the unit of the last one */
      var divisor = long ? 1000 : 1;
      var decimals = Math.max(0, -Math.floor(Math.log10(gap / divisor) + 1e-9));
      var digits = { minimumFractionDigits: decimals, maximumFractionDigits: decimals };
      pen.clearRect(0, 0, layout.width, layout.axis);
      pen.font = brush.PLAIN;
      for (var tick = Math.ceil((view.from - zero) / gap - 1e-9); zero + tick * gap <= view.to; tick++) {
        var at = view.x(zero + tick * gap);
        pen.fillStyle = colors.line2;
        pen.fillRect(at, SIZES.ticks - 5, 1, 5);
        pen.fillStyle = colors.mute;
        var text = (tick ? tick * gap / divisor : 0).toLocaleString("en-US", digits) + (long ? " s" : " ms");
        var wide = pen.measureText(text).width;
        if (at + wide / 2 < layout.width) {
          pen.fillText(text, Math.max(layout.gutter, at - wide / 2), 13);
        }
      }
      drawPart();
      if (layout.axis > SIZES.ticks) {
        view.spans.view.steps.forEach(drawStepName);
      }
      drawRangeTime();
    }
    /* Which part of the chosen step is in view, unless it is all of it. */
    function drawPart() {
      var layout = view.layout, step = view.chosenStep();
      var first = Math.max(view.from, step.start), last = Math.min(view.to, step.end);
      if (last - first > 0.99 * (step.end - step.start) || last <= first) {
        return;
      }
      var scale = (layout.width - layout.gutter) / (step.end - step.start);
      pen.fillStyle = colors.grid;
      pen.fillRect(layout.gutter, 0, layout.width - layout.gutter, 4);
      pen.fillStyle = colors.link;
      pen.fillRect(layout.gutter + (first - step.start) * scale, 0, Math.max(3, (last - first) * scale), 4);
    }
    function drawStepName(step, number) {
      var left = Math.max(view.layout.gutter, view.x(step.start));
      var wide = Math.min(view.layout.width, view.x(step.end)) - left - 1;
      if (wide > 0) {
        pen.fillStyle = number === view.step ? colors.mute : colors.grid;
        pen.fillRect(left, SIZES.ticks + 1, wide, SIZES.stepNames - 4);
        if (wide > SIZES.leastLabel) {
          pen.fillStyle = number === view.step ? colors.card : colors.ink;
          pen.fillText(brush.fitted(step.name, wide - 8), left + 4, SIZES.ticks + SIZES.stepNames / 2 - 0.5);
        }
      }
    }

    /* The chosen range */

    /* The edges of the range in pixels, null if it is not in view. */
    function edges() {
      var left = view.range && Math.max(view.layout.gutter, view.x(view.range.from));
      var right = view.range && Math.min(view.layout.width, view.x(view.range.to));
      return right > left ? [left, right] : null;
    }
    function drawRange() {
      var shown = edges(), axis = view.layout.axis, height = view.layout.height;
      if (shown) {
        pen.fillStyle = colors.link;
        pen.globalAlpha = 0.13;
        pen.fillRect(shown[0], axis, shown[1] - shown[0], height);
        pen.globalAlpha = 1;
        pen.fillRect(shown[0], axis, 1, height);
        pen.fillRect(shown[1] - 1, axis, 1, height);
      }
    }
    function drawRangeTime() {
      var shown = edges();
      if (shown) {
        pen.font = brush.BOLD;
        var text = tools.time(view.range.to - view.range.from);
        var wide = pen.measureText(text).width + 10;
        var at = Math.max(view.layout.gutter, Math.min(view.layout.width - wide, (shown[0] + shown[1] - wide) / 2));
        pen.fillStyle = colors.link;
        pen.fillRect(shown[0], SIZES.ticks - 3, shown[1] - shown[0], 3);
        pen.fillRect(at, 4, wide, SIZES.ticks - 7);
        pen.fillStyle = colors.card;
        pen.fillText(text, at + 5, 14);
      }
    }
    return { drawAxis: drawAxis, drawRange: drawRange, drawSelection: drawSelection };
  };
})();
