/* The bars of a row of the timeline: one for each span, or a shaded column for those that are too narrow. */
(function () {
  "use strict";
  var SIZES = window.traceopt.SPAN_SIZES; /* of layout.js */
  var NARROW = 1.5; /* pixels: spans below it share a column */
  var PALE = 0.18; /* the opacity of what is not searched for */
  var LETTER = 6.1; /* mean width of a letter of a label */

  /* `brush`: of painting.js. `view`: of view.js. Gives the function that draws a row at a height of the canvas. */
  window.traceopt.spanBars = function (brush, view) {
    var pen = brush.pen;

    function colorOf(index) {
      var spans = view.spans, table = spans.view;
      return index >= spans.firstStall ? table.stalls[index - spans.firstStall].color : table.categories[spans.category[index]][0];
    }
    /* Equal names have the same shade of the color of their kind. */
    function shadeOf(index) {
      var shades = brush.shades[colorOf(index)];
      return index >= view.spans.firstStall ? shades[0] : shades[view.spans.name[index] % shades.length];
    }
    function isPale(index) {
      return view.matches !== null && !view.matches[view.spans.name[index]];
    }
    /* Spans narrower than a pixel share its column: its opacity is how full it is. */
    function drawRow(row, y) {
      var start = view.spans.start, duration = view.spans.duration, firstStall = view.spans.firstStall;
      var gutter = view.layout.gutter, width = view.layout.width, from = view.from, to = view.to;
      var scale = 1 / view.msPerPixel();
      var column = -1, filled = 0, widest = 0, pending = "", isMatch = false, color = "";
      var labels = [], coverable = []; /* those of spans that the next one may cover */
      function setColor(next) {
        if (color !== next) {
          color = next;
          pen.fillStyle = color;
        }
      }
      function flush() {
        if (column >= 0) {
          pen.globalAlpha = (view.matches && !isMatch ? PALE : 1) * (0.3 + 0.7 * Math.min(1, filled));
          setColor(pending);
          pen.fillRect(column, y, 1, row.height);
          column = -1;
        }
      }
      for (var at = view.layout.firstReaching(row, from); at < row.spans.length; at++) {
        var index = row.spans[at];
        if (start[index] > to) {
          break;
        }
        var left = gutter + (start[index] - from) * scale;
        var wide = duration[index] * scale;
        if (left + wide < gutter) {
          continue;
        }
        if (wide < NARROW) {
          var pixel = Math.max(gutter, Math.floor(left));
          if (pixel !== column) {
            flush();
            column = pixel;
            filled = widest = 0;
            isMatch = false;
          }
          filled += Math.max(wide, 0.05);
          isMatch = isMatch || !isPale(index);
          if (wide >= widest) {
            widest = wide;
            pending = shadeOf(index);
          }
          continue;
        }
        flush();
        var begin = Math.max(left, gutter);
        var shown = Math.min(left + wide, width) - begin;
        var gap = shown > 4 ? 1 : shown > 2 ? 0.5 : 0;
        pen.globalAlpha = isPale(index) ? PALE : 1;
        setColor(shadeOf(index));
        pen.fillRect(begin, y, shown - gap, row.height);
        if (index >= firstStall) {
          hatch(begin, y, shown - gap, row.height);
        }
        coverable = coverable.filter(function (open) {
          if (open.right > begin) {
            takeRoom(open, begin);
            open.left = Math.max(open.left, begin + shown);
          }
          return open.right > begin;
        });
        if (shown > SIZES.leastLabel) {
          var made = { index: index, left: begin, right: begin + shown, at: begin, room: 0 };
          labels.push(made);
          coverable.push(made);
        }
      }
      flush();
      pen.globalAlpha = 1;
      labels.forEach(function (made) { label(made, y + row.height / 2 + 0.5); });
    }
    /* A label stands in the widest part of its span that no later span of the row covers. */
    function takeRoom(open, until) {
      if (until - open.left > open.room) {
        open.at = open.left;
        open.room = until - open.left;
      }
    }
    function label(open, middle) {
      takeRoom(open, open.right);
      if (open.room > SIZES.leastLabel) {
        var name = view.spans.view.labels[view.spans.name[open.index]];
        var dark = colorOf(open.index) === "wait" ? brush.colors.ink : brush.colors.card;
        pen.fillStyle = isPale(open.index) ? brush.colors.mute : dark;
        pen.fillText(brush.cut(name, Math.floor((open.room - 8) / LETTER)), open.at + 4, middle);
      }
    }
    /* Stripes: time without work. */
    function hatch(left, y, wide, tall) {
      pen.save();
      pen.beginPath();
      pen.rect(left, y, wide, tall);
      pen.clip();
      pen.strokeStyle = brush.colors.card;
      pen.globalAlpha *= 0.35;
      pen.beginPath();
      for (var at = left - (left % 8) - tall; at < Math.min(left + wide, view.layout.width); at += 8) {
        pen.moveTo(at, y + tall);
        pen.lineTo(at + tall, y);
      }
      pen.stroke();
      pen.restore();
    }
    return drawRow;
  };
})();
