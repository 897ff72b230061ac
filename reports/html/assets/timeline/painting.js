/* Draws the timeline on its canvas: bands, rows, names of lanes. Names are only ever drawn, never markup. */
(function () {
  "use strict";
  var tools = window.traceopt; /* of page/shared.js */
  var SIZES = tools.SPAN_SIZES; /* of layout.js */
  var SHADES = 4; /* of a color, so that neighbors of one kind differ */
  var TOKENS = ["ink", "mute", "card", "grid", "line2", "link", "wait", "shade"];
  var PLAIN = "11px system-ui, sans-serif", BOLD = "600 11px system-ui, sans-serif", LANE = "600 12px system-ui, sans-serif";

  /* `view`: of view.js. The painter has draw(), resize() for a new layout, and readColors() for another theme. */
  tools.spanPainter = function (canvas, view) {
    var pen = canvas.getContext("2d");
    var brush = { pen: pen, colors: {}, shades: {}, within: within, cut: tools.cutText, fitted: fitted, PLAIN: PLAIN, BOLD: BOLD };
    var colors = brush.colors;
    var drawRow = tools.spanBars(brush, view), marks = tools.spanMarks(brush, view);

    /* Of each color there are SHADES, from it towards the color of text. */
    function readColors() {
      var styles = getComputedStyle(document.documentElement), table = view.spans.view;
      var looks = table.categories.map(function (look) { return look[0]; });
      var stalls = table.stalls.map(function (stall) { return stall.color; });
      TOKENS.concat(looks, stalls).forEach(function (token) {
        colors[token] = styles.getPropertyValue("--" + token).trim();
      });
      Object.keys(colors).forEach(function (token) {
        brush.shades[token] = [];
        for (var shade = 0; shade < SHADES; shade++) {
          var part = shade * (token === "wait" ? 4 : 12);
          brush.shades[token].push("color-mix(in srgb, " + colors[token] + ", " + colors.ink + " " + part + "%)");
        }
      });
    }
    function resize() {
      var ratio = window.devicePixelRatio || 1, layout = view.layout;
      canvas.width = Math.round(layout.width * ratio);
      canvas.height = Math.round(layout.height * ratio);
      canvas.style.width = layout.width + "px";
      canvas.style.height = layout.height + "px";
      pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    }
    function draw() {
      var layout = view.layout;
      pen.clearRect(0, 0, layout.width, layout.height);
      pen.font = PLAIN;
      pen.textBaseline = "middle";
      drawBands();
      marks.drawRange();
      below(function () { drawRows(false); });
      drawRows(true);
      if (layout.pinnedBottom > layout.axis) {
        pen.fillStyle = colors.line2;
        pen.fillRect(0, layout.pinnedBottom - SIZES.laneGap / 2, layout.width, 1);
      }
      layout.lanes.forEach(drawWhereabouts);
      canvas.dataset.hint = marks.drawSelection();
      drawLaneNames();
      marks.drawAxis();
      canvas.dataset.from = view.from;
      canvas.dataset.to = view.to;
    }
    function drawRows(pinned) {
      view.layout.rows.forEach(function (row) {
        if (row.lane.pinned === pinned && view.layout.isSeen(row)) {
          drawRow(row, view.layout.screenY(row));
        }
      });
    }
    /* Draws what scrolls: nothing of it covers the lanes that stay. */
    function below(drawing) {
      pen.save();
      pen.beginPath();
      pen.rect(0, view.layout.pinnedBottom, view.layout.width, view.layout.height);
      pen.clip();
      drawing();
      pen.restore();
    }
    function within(lane, drawing) {
      if (lane.pinned) {
        drawing();
      } else {
        below(drawing);
      }
    }
    /* The stalls and the edges of steps. */
    function drawBands() {
      var axis = view.layout.axis, height = view.layout.height;
      pen.globalAlpha = 0.1;
      view.spans.view.stalls.forEach(function (stall) {
        if (stall.end > view.from && stall.start < view.to) {
          var left = Math.max(view.layout.gutter, view.x(stall.start));
          pen.fillStyle = colors[stall.color];
          pen.fillRect(left, axis, Math.max(1, view.x(stall.end) - left), height);
        }
      });
      pen.globalAlpha = 1;
      pen.fillStyle = colors.line2;
      view.spans.view.steps.forEach(function (step) {
        [step.start, step.end].forEach(function (time) {
          if (time >= view.from && time <= view.to) {
            pen.fillRect(Math.round(view.x(time)), axis, 1, height);
          }
        });
      });
    }
    /* Where the spans of a lane are that has none in view: a host that runs ahead, for one, launched the work earlier. */
    function drawWhereabouts(lane) {
      var layout = view.layout, top = lane.rows[0];
      var isInView = lane.rows.some(function (row) {
        return view.spans.start[row.spans[layout.firstReaching(row, view.from)]] <= view.to;
      });
      if (isInView || !layout.isSeen(top)) {
        return;
      }
      var earlier = lane.rows.reduce(function (sum, row) { return sum + layout.firstFrom(row, view.from); }, 0);
      var later = lane.rows.reduce(function (sum, row) { return sum + row.spans.length; }, 0) - earlier;
      var texts = [earlier && "◂ " + tools.counted(earlier, "span") + " earlier", later && tools.counted(later, "span") + " later ▸"];
      within(lane, function () {
        pen.fillStyle = colors.mute;
        pen.fillText(texts.filter(Boolean).join(", "), layout.gutter + 4, layout.screenY(top) + top.height / 2);
      });
    }
    function drawLaneNames() {
      if (view.layout.gutter) {
        pen.clearRect(0, view.layout.axis, view.layout.gutter - 6, view.layout.height);
      }
      view.layout.lanes.forEach(function (lane) {
        within(lane, function () { drawLaneName(lane); });
      });
    }
    /* The name of a lane that has scrolled up stays as long as one of its rows is in view. */
    function drawLaneName(lane) {
      var layout = view.layout, gutter = layout.gutter;
      var above = layout.screenY(lane.rows[0]) - lane.rows[0].y + lane.top;
      var last = above + lane.bottom - lane.top - SIZES.laneGap - (gutter ? SIZES.named : SIZES.header);
      var top = lane.pinned ? above : Math.max(above, Math.min(layout.pinnedBottom, last));
      if (top > above && !gutter) {
        pen.fillStyle = colors.card;
        pen.fillRect(0, top, layout.width, SIZES.header);
      }
      var y = top + (gutter ? SIZES.tall : SIZES.header) / 2;
      var detail = lane.kind === "activity" ? "activities" : lane.detail;
      pen.fillStyle = colors.ink;
      pen.font = LANE;
      var name = fitted(lane.name, gutter ? gutter - 14 : layout.width / 2);
      pen.fillText(name, 4, y);
      var wide = pen.measureText(name).width;
      pen.font = PLAIN;
      pen.fillStyle = colors.mute;
      if (gutter) {
        pen.fillText(fitted(detail, gutter - 14), 4, y + 14);
      } else {
        pen.fillText(tools.cutText(detail, 20), wide + 12, y);
      }
    }
    /* The beginning of a text that fits into a width. */
    function fitted(text, room) {
      var letters = Math.min(text.length, 60);
      while (letters > 1 && pen.measureText(tools.cutText(text, letters)).width > room) {
        letters--;
      }
      return tools.cutText(text, letters);
    }
    return { draw: draw, resize: resize, readColors: readColors };
  };
})();
