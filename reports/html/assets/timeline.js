/* The timeline that zooms: every span of traceopt/result/rows.py on a canvas. Names are only ever drawn or set as text. */
(function () {
  "use strict";

  var tools = window.traceopt; /* of main.js */
  var canvas = document.getElementById("span-canvas");
  if (!canvas || !window.DecompressionStream) {
    return;
  }
  var box = document.getElementById("span-viewer");
  var scroller = canvas.parentNode;
  var extent = document.getElementById("span-extent");
  var details = document.getElementById("span-details");
  var search = document.getElementById("span-search");
  var found = document.getElementById("span-found");
  var scope = document.getElementById("span-scope");
  var pythonBox = document.getElementById("span-python");
  var stepName = document.getElementById("span-step");
  var note = document.getElementById("span-note");
  var tip = document.getElementById("span-tip");
  var about = document.getElementById("span-about");
  var keyHelp = document.getElementById("span-keys");
  var time = tools.time, percent = tools.percent, counted = tools.counted; /* of units.js */
  var noun = box.dataset.noun; /* "step" or "recording" */
  var pen = canvas.getContext("2d");

  var TICKS = 26; /* heights in pixels */
  var STEP_NAMES = 18;
  var TALL = 22;
  var LOW = 16;
  var HEADER = 18;
  var LANE_GAP = 8;
  var LEAST_LABEL = 28;
  var LETTER = 6.1; /* mean width of a letter of a label */
  var LONG = tools.LONG;
  var SMALLEST_VIEW = 2e-5; /* ms */
  var SPAN_VIEW = 0.05; /* ms; nearer than this, the view only goes by hand */
  var WIDE = 700;
  var NAMED = 30; /* height of a lane's name beside its rows */
  var MOST_PINNED = 0.6; /* of the height: the lanes that stay while the threads scroll */
  var SHADES = 4; /* of a color, so that neighbors of one kind differ */
  var MOST_LINKS = 6;
  var MOST_ARROWS = 200;
  var MOST_SUMS = 8; /* rows of a table of sums */

  var view = null; /* what span_view.py wrote; the columns are explained in spans.js */
  var start, duration, end, name, category, place, detail; /* of every span; stalls come last */
  var operator, operatorDetail, launchLane, launchDelay; /* of spans of streams */
  var laneOf, rowOf, streamFirst, firstStall;
  var spansAt; /* the spans of a thread that are open at a time, outermost first */
  var lanes = []; /* {kind, name, detail, first, count, top, bottom, pinned} */
  var rows = []; /* {lane, spans, y, height} from top to bottom */
  var from = 0, to = 1, least = 0, most = 1; /* ms */
  var chosenStep = 0;
  var selected = -1;
  var range = null; /* {from, to} in ms, whose sums are shown */
  var atEdge = 0; /* the direction in which the next key leaves the step */
  var matches = null; /* by name, while there is something to find */
  var hits = []; /* the spans found: GPU work first, Python frames last, each in order of time */
  var colors = {};
  var shades = {}; /* of each color: SHADES from it towards the color of text */
  var width = 0, height = 0, gutter = 0, axis = TICKS;
  var pinnedBottom = TICKS; /* where the part of the canvas begins that scrolls */
  var asked = false;

  /* The data, from spans.js */

  function read(spans) {
    view = spans.view;
    lanes = spans.lanes;
    start = spans.start;
    end = spans.end;
    duration = spans.duration;
    name = spans.name;
    category = spans.category;
    place = spans.place;
    detail = spans.detail;
    laneOf = spans.laneOf;
    operator = spans.operator;
    operatorDetail = spans.operatorDetail;
    launchLane = spans.launchLane;
    launchDelay = spans.launchDelay;
    streamFirst = spans.streamFirst;
    firstStall = spans.firstStall;
    spansAt = spans.openAt;
    rowOf = new Int32Array(start.length);
    axis = view.steps.length > 1 ? TICKS + STEP_NAMES : TICKS;
    least = view.steps[0].start;
    most = view.steps[view.steps.length - 1].end;
    for (var index = 0; index < firstStall; index++) {
      least = Math.min(least, start[index]);
      most = Math.max(most, end[index]);
    }
  }

  /* Layout: a thread has a row for each level of nesting. */

  function isHidden(index) {
    return !pythonBox.checked && category[index] >= 0 && view.categories[category[index]][0] === "python";
  }
  function rowsOf(lane) {
    var open = [];
    var made = [];
    for (var index = lane.first; index < lane.first + lane.count; index++) {
      if (lane.kind === "thread" && isHidden(index)) {
        rowOf[index] = -1;
        continue;
      }
      var level = 0;
      if (lane.kind !== "activity") {
        while (level < open.length && open[level] > start[index] + 1e-9) {
          level++;
        }
        open.length = level;
        open.push(Math.max(end[index], start[index] + 1e-6));
      }
      if (!made[level]) {
        made[level] = [];
      }
      made[level].push(index);
    }
    return made.filter(Boolean);
  }
  function layOut() {
    rows = [];
    gutter = width > WIDE ? 158 : 0;
    var y = axis + 2;
    var kinds = ["stalls", "idle", "stream", "activity", "thread"]; /* the overview comes before the nested events */
    var ordered = kinds.map(function (kind) {
      return lanes.filter(function (lane) { return lane.kind === kind; });
    });
    ordered = [].concat.apply([], ordered);
    ordered.forEach(function (lane) {
      var made = rowsOf(lane);
      if (!made.length) {
        lane.top = -1;
        return;
      }
      lane.top = y;
      y += gutter ? 0 : HEADER;
      made.forEach(function (spans) {
        var tall = lane.kind === "thread" ? LOW : TALL;
        for (var i = 0; i < spans.length; i++) {
          rowOf[spans[i]] = rows.length;
        }
        rows.push({ lane: lane, spans: Int32Array.from(spans), reach: reachOf(spans), y: y, height: tall });
        y += tall + 1;
      });
      y = Math.max(y, gutter ? lane.top + NAMED : 0) + LANE_GAP;
      lane.bottom = y;
    });
    height = Math.max(120, Math.min(y, Math.round(innerHeight * (gutter ? 0.7 : 0.55))));
    pin(ordered, y > height);
    extent.style.height = y + "px";
    scroller.style.height = height + "px";
    resize();
  }
  /* While the threads scroll, the lanes above them stay in view: all that fit, the GPU's first. */
  function pin(ordered, scrolls) {
    pinnedBottom = axis;
    var room = scrolls;
    ordered.forEach(function (lane) {
      room = room && lane.kind !== "thread" && (lane.top < 0 || lane.bottom <= axis + (height - axis) * MOST_PINNED);
      lane.pinned = room;
      pinnedBottom = room && lane.top >= 0 ? lane.bottom : pinnedBottom;
    });
  }
  function screenY(row) {
    return row.lane.pinned ? row.y : row.y - scroller.scrollTop;
  }
  function isSeen(row) {
    var y = screenY(row);
    return row.lane.pinned || (y + row.height > pinnedBottom && y < height);
  }
  function resize() {
    var ratio = window.devicePixelRatio || 1;
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    canvas.style.width = width + "px";
    canvas.style.height = height + "px";
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    ask();
  }
  function measure() {
    var now = scroller.clientWidth;
    if (now && now !== width) {
      width = now;
      layOut();
    }
  }
  function readColors() {
    var styles = getComputedStyle(document.documentElement);
    ["ink", "mute", "card", "grid", "line2", "link", "wait", "shade"].forEach(function (token) {
      colors[token] = styles.getPropertyValue("--" + token).trim();
    });
    view.categories.concat(view.stalls.map(function (stall) { return [stall.color]; })).forEach(function (look) {
      colors[look[0]] = styles.getPropertyValue("--" + look[0]).trim();
    });
    Object.keys(colors).forEach(function (token) {
      shades[token] = [];
      for (var shade = 0; shade < SHADES; shade++) {
        shades[token].push("color-mix(in srgb, " + colors[token] + ", " + colors.ink + " " + (shade * (token === "wait" ? 4 : 12)) + "%)");
      }
    });
  }

  /* Drawing */

  function ask() {
    if (!asked && view) {
      asked = true;
      requestAnimationFrame(function () {
        asked = false;
        draw();
      });
    }
  }
  function x(ms) {
    return gutter + ((ms - from) / (to - from)) * (width - gutter);
  }
  function ms(pixel) {
    return from + ((pixel - gutter) / (width - gutter)) * (to - from);
  }
  function colorOf(index) {
    return index >= firstStall ? view.stalls[index - firstStall].color : view.categories[category[index]][0];
  }
  /* Equal names have the same shade of the color of their kind. */
  function shadeOf(index) {
    return index >= firstStall ? colors[colorOf(index)] : shades[colorOf(index)][name[index] % SHADES];
  }
  /* How far the spans of a row up to each one reach: activities of a thread may lie within a longer one. */
  function reachOf(spans) {
    var reach = new Float64Array(spans.length);
    for (var i = 0; i < spans.length; i++) {
      reach[i] = Math.max(end[spans[i]], i ? reach[i - 1] : -Infinity);
    }
    return reach;
  }
  /* The place in a row before which no span reaches a time. */
  function firstReaching(row, time) {
    var low = 0, high = row.reach.length;
    while (low < high) {
      var middle = (low + high) >> 1;
      if (row.reach[middle] < time) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    return low;
  }
  /* The first span of a row that starts at or after a time. */
  function lowerBound(spans, time) {
    var low = 0, high = spans.length;
    while (low < high) {
      var middle = (low + high) >> 1;
      if (start[spans[middle]] < time) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    return low;
  }
  /* Draws what scrolls: nothing of it covers the lanes that stay. */
  function below(drawing) {
    pen.save();
    pen.beginPath();
    pen.rect(0, pinnedBottom, width, height);
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
  function draw() {
    pen.clearRect(0, 0, width, height);
    pen.font = "11px system-ui, sans-serif";
    pen.textBaseline = "middle";
    drawBands();
    drawRange();
    function drawRows(pinned) {
      rows.forEach(function (row) {
        if (Boolean(row.lane.pinned) === pinned && isSeen(row)) {
          drawRow(row, screenY(row));
        }
      });
    }
    below(function () { drawRows(false); });
    drawRows(true);
    if (pinnedBottom > axis) {
      pen.fillStyle = colors.line2;
      pen.fillRect(0, pinnedBottom - LANE_GAP / 2, width, 1);
    }
    lanes.forEach(drawWhereabouts);
    drawSelection();
    drawLaneNames();
    drawAxis();
    canvas.dataset.from = from;
    canvas.dataset.to = to;
  }
  /* Where the spans of a lane are that has none in view: a host that runs ahead, for one, launched the work earlier. */
  function drawWhereabouts(lane) {
    var mine = rows.filter(function (row) { return row.lane === lane; });
    var isInView = mine.some(function (row) { return start[row.spans[firstReaching(row, from)]] <= to; });
    if (!mine.length || isInView || !isSeen(mine[0])) {
      return;
    }
    var earlier = mine.reduce(function (sum, row) { return sum + lowerBound(row.spans, from); }, 0);
    var later = mine.reduce(function (sum, row) { return sum + row.spans.length; }, 0) - earlier;
    var texts = [earlier && "◂ " + counted(earlier, "span") + " earlier", later && counted(later, "span") + " later ▸"];
    within(lane, function () {
      pen.fillStyle = colors.mute;
      pen.fillText(texts.filter(Boolean).join(", "), gutter + 4, screenY(mine[0]) + mine[0].height / 2);
    });
  }
  function drawBands() {
    view.stalls.forEach(function (stall) {
      if (stall.end > from && stall.start < to) {
        pen.globalAlpha = 0.1;
        pen.fillStyle = colors[stall.color];
        pen.fillRect(x(stall.start), axis, Math.max(1, x(stall.end) - x(stall.start)), height);
      }
    });
    pen.globalAlpha = 1;
    pen.fillStyle = colors.line2;
    view.steps.forEach(function (step) {
      [step.start, step.end].forEach(function (time) {
        if (time >= from && time <= to) {
          pen.fillRect(Math.round(x(time)), axis, 1, height);
        }
      });
    });
  }
  /* Spans narrower than a pixel share its column: its opacity is how full it is. */
  function drawRow(row, y) {
    var spans = row.spans;
    var scale = (width - gutter) / (to - from);
    var column = -1, filled = 0, widest = 0, pending = "", isMatch = false, color = "";
    var labels = [], coverable = []; /* those of spans that the next one may cover */
    function flush() {
      if (column >= 0) {
        pen.globalAlpha = (matches && !isMatch ? 0.18 : 1) * (0.3 + 0.7 * Math.min(1, filled));
        if (color !== pending) {
          color = pending;
          pen.fillStyle = color;
        }
        pen.fillRect(column, y, 1, row.height);
        column = -1;
      }
    }
    for (var at = firstReaching(row, from); at < spans.length; at++) {
      var index = spans[at];
      if (start[index] > to) {
        break;
      }
      var left = gutter + (start[index] - from) * scale;
      var wide = duration[index] * scale;
      if (left + wide < gutter) {
        continue;
      }
      if (wide < 1.5) {
        var pixel = Math.max(gutter, Math.floor(left));
        if (pixel !== column) {
          flush();
          column = pixel;
          filled = widest = 0;
          isMatch = false;
        }
        filled += Math.max(wide, 0.05);
        isMatch = isMatch || (matches !== null && matches[name[index]] === 1);
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
      pen.globalAlpha = matches && !matches[name[index]] ? 0.18 : 1;
      if (color !== shadeOf(index)) {
        color = shadeOf(index);
        pen.fillStyle = color;
      }
      pen.fillRect(begin, y, shown - gap, row.height);
      if (index >= firstStall) {
        hatch(begin, y, shown - gap, row.height);
        color = "";
      }
      coverable = coverable.filter(function (open) {
        if (open.right > begin) {
          takeRoom(open, begin);
          open.left = Math.max(open.left, begin + shown);
        }
        return open.right > begin;
      });
      if (shown > LEAST_LABEL) {
        var made = { index: index, left: begin, right: begin + shown, at: begin, room: 0 };
        labels.push(made);
        coverable.push(made);
      }
    }
    flush();
    labels.forEach(function (made) { label(made, y, row.height); });
    pen.globalAlpha = 1;
  }
  /* A label stands in the widest part of its span that no later span of the row covers. */
  function takeRoom(open, until) {
    if (until - open.left > open.room) {
      open.at = open.left;
      open.room = until - open.left;
    }
  }
  function hatch(left, y, wide, tall) {
    pen.save();
    pen.beginPath();
    pen.rect(left, y, wide, tall);
    pen.clip();
    pen.strokeStyle = colors.card;
    pen.globalAlpha *= 0.35;
    pen.beginPath();
    for (var at = left - (left % 8) - tall; at < Math.min(left + wide, width); at += 8) {
      pen.moveTo(at, y + tall);
      pen.lineTo(at + tall, y);
    }
    pen.stroke();
    pen.restore();
  }
  function shortName(index) {
    return view.labels[name[index]];
  }
  function label(open, y, tall) {
    takeRoom(open, open.right);
    if (open.room <= LEAST_LABEL) {
      return;
    }
    var dimmed = matches && !matches[name[open.index]]; /* its bar is pale, so the text is dark */
    pen.globalAlpha = 1;
    pen.fillStyle = dimmed ? colors.mute : colorOf(open.index) === "wait" ? colors.ink : colors.card;
    pen.fillText(cut(shortName(open.index), Math.floor((open.room - 8) / LETTER)), open.at + 4, y + tall / 2 + 0.5);
  }
  function drawSelection() {
    delete canvas.dataset.hint;
    if (selected < 0 || rowOf[selected] < 0) {
      return;
    }
    var row = rows[rowOf[selected]];
    var left = Math.max(gutter, x(start[selected]));
    var wide = Math.max(3, Math.min(width, x(end[selected])) - left);
    var arrows = arrowsOf(selected);
    arrows.forEach(drawArrow);
    function frame() {
      pen.strokeStyle = colors.ink;
      pen.lineWidth = 2;
      pen.strokeRect(left - 1, screenY(row) - 1, wide + 1, row.height + 2);
    }
    if (left <= width && x(end[selected]) >= gutter) {
      within(row.lane, frame);
    }
    if (arrows.length) {
      hintAt(arrows[0]);
    }
  }
  /* Where the other end of an arrow is that leaves the view, at the edge behind which it lies. */
  function hintAt(arrow) {
    var toCall = isStream(selected);
    var at = x(toCall ? arrow.time : start[arrow.to]);
    var row = toCall ? arrow.row : rows[rowOf[arrow.to]];
    var sign = at < gutter ? "◂" : at > width ? "▸" : isSeen(row) ? "" : screenY(row) < pinnedBottom ? "▴" : "▾";
    if (!sign) {
      return;
    }
    var apart = time(Math.abs(start[arrow.to] - arrow.time));
    var text = sign + " " + (toCall ? "launched " + apart + " earlier" : "runs " + apart + " later") + (gutter ? ": press L" : "");
    pen.font = "600 11px system-ui, sans-serif";
    var wide = pen.measureText(text).width + 12;
    var left = Math.max(gutter + 3, Math.min(width - wide - 3, at - wide / 2));
    var top = Math.max(axis + 3, Math.min(height - 21, arrowY(row) - 9));
    pen.fillStyle = colors.ink;
    pen.fillRect(left, top, wide, 18);
    pen.fillStyle = colors.card;
    pen.fillText(text, left + 6, top + 9.5);
    canvas.dataset.hint = text;
  }
  function arrowY(row) {
    return Math.max(row.lane.pinned ? axis : pinnedBottom, Math.min(height, screenY(row) + row.height / 2));
  }
  /* From the call to the work on a stream: of the chosen work, or of all that the chosen span launched. */
  function arrowsOf(index) {
    var work = isStream(index) ? [index] : launchedBy(index).slice(0, MOST_ARROWS);
    return work.map(function (to) {
      var launch = launchOf(to);
      return launch && launch.row >= 0 && rowOf[to] >= 0 ? { time: launch.time, row: rows[launch.row], to: to } : null;
    }).filter(Boolean);
  }
  function drawArrow(arrow) {
    var x1 = x(arrow.time), y1 = arrowY(arrow.row);
    var x2 = x(start[arrow.to]), y2 = arrowY(rows[rowOf[arrow.to]]);
    pen.save();
    pen.beginPath();
    pen.rect(gutter, axis, width, height);
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
  function drawLaneNames() {
    if (gutter) {
      pen.clearRect(0, axis, gutter - 6, height);
    }
    lanes.forEach(function (lane) {
      if (lane.top >= 0) {
        within(lane, function () { (lane.pinned ? drawLaneName : drawScrolledName)(lane, lane.top); });
      }
    });
  }
  /* The name of a lane that has scrolled up stays as long as one of its rows is in view. */
  function drawScrolledName(lane) {
    var above = lane.top - scroller.scrollTop;
    var last = lane.bottom - scroller.scrollTop - LANE_GAP - (gutter ? NAMED : HEADER);
    var top = Math.max(above, Math.min(pinnedBottom, last));
    if (top > above && !gutter) {
      pen.fillStyle = colors.card;
      pen.fillRect(0, top, width, HEADER);
    }
    drawLaneName(lane, top);
  }
  function drawLaneName(lane, top) {
    pen.fillStyle = colors.ink;
    pen.font = "600 12px system-ui, sans-serif";
    var y = top + (gutter ? TALL / 2 : HEADER / 2);
    var text = fitted(lane.name, gutter ? gutter - 14 : width / 2);
    pen.fillText(text, 4, y);
    var wide = pen.measureText(text).width;
    pen.font = "11px system-ui, sans-serif";
    pen.fillStyle = colors.mute;
    if (gutter) {
      pen.fillText(fitted(lane.kind === "activity" ? "activities" : lane.detail, gutter - 14), 4, y + 14);
    } else {
      pen.fillText(lane.kind === "activity" ? "activities" : cut(lane.detail, 20), wide + 12, y);
    }
  }
  function cut(text, letters) {
    return text.length <= letters ? text : text.slice(0, Math.max(1, letters - 1)) + "…";
  }
  /* The beginning of a text that fits into a width. */
  function fitted(text, room) {
    var letters = Math.min(text.length, 60);
    while (letters > 1 && pen.measureText(cut(text, letters)).width > room) {
      letters--;
    }
    return cut(text, letters);
  }
  /* Round times since the start of the chosen step; above them the part of all spans that is shown, below them the steps. */
  function drawAxis() {
    var zero = view.steps[chosenStep].start;
    var rough = (to - from) / Math.max(3, (width - gutter) / 110);
    var unit = Math.pow(10, Math.floor(Math.log10(rough)));
    var gap = [1, 2, 5, 10].map(function (factor) { return factor * unit; }).find(function (one) { return one >= rough; });
    var long = to - zero >= LONG; /* all ticks have the unit of the last one */
    var divisor = long ? 1000 : 1;
    var decimals = Math.max(0, -Math.floor(Math.log10(gap / divisor) + 1e-9));
    pen.clearRect(0, 0, width, axis);
    pen.font = "11px system-ui, sans-serif";
    for (var tick = Math.ceil((from - zero) / gap - 1e-9); zero + tick * gap <= to; tick++) {
      var at = x(zero + tick * gap);
      pen.fillStyle = colors.line2;
      pen.fillRect(at, TICKS - 5, 1, 5);
      pen.fillStyle = colors.mute;
      var text = (tick ? tick * gap / divisor : 0).toLocaleString("en-US", { minimumFractionDigits: decimals, maximumFractionDigits: decimals }) + (long ? " s" : " ms");
      var wide = pen.measureText(text).width;
      if (at + wide / 2 < width) {
        pen.fillText(text, Math.max(gutter, at - wide / 2), 13);
      }
    }
    drawView();
    if (axis > TICKS) {
      view.steps.forEach(drawStepName);
    }
    drawRangeTime();
  }
  /* Which part of the chosen step is in view, unless it is all of it. */
  function drawView() {
    var step = view.steps[chosenStep];
    var first = Math.max(from, step.start), last = Math.min(to, step.end);
    if (last - first > 0.99 * (step.end - step.start) || last <= first) {
      return;
    }
    var wide = (width - gutter) / (step.end - step.start);
    pen.fillStyle = colors.grid;
    pen.fillRect(gutter, 0, width - gutter, 4);
    pen.fillStyle = colors.link;
    pen.fillRect(gutter + (first - step.start) * wide, 0, Math.max(3, (last - first) * wide), 4);
  }
  function drawStepName(step, number) {
    var left = Math.max(gutter, x(step.start));
    var wide = Math.min(width, x(step.end)) - left - 1;
    if (wide > 0) {
      pen.fillStyle = number === chosenStep ? colors.mute : colors.grid;
      pen.fillRect(left, TICKS + 1, wide, STEP_NAMES - 4);
      if (wide > LEAST_LABEL) {
        pen.fillStyle = number === chosenStep ? colors.card : colors.ink;
        pen.fillText(fitted(step.name, wide - 8), left + 4, TICKS + STEP_NAMES / 2 - 0.5);
      }
    }
  }
  function drawRange() {
    if (range) {
      var left = Math.max(gutter, x(range.from)), right = Math.min(width, x(range.to));
      if (right > left) {
        pen.fillStyle = colors.link;
        pen.globalAlpha = 0.13;
        pen.fillRect(left, axis, right - left, height);
        pen.globalAlpha = 1;
        pen.fillRect(left, axis, 1, height);
        pen.fillRect(right - 1, axis, 1, height);
      }
    }
  }
  function drawRangeTime() {
    var left = range && Math.max(gutter, x(range.from)), right = range && Math.min(width, x(range.to));
    if (range && right > left) {
      pen.font = "600 11px system-ui, sans-serif";
      var text = time(range.to - range.from);
      var wide = pen.measureText(text).width + 10;
      var at = Math.max(gutter, Math.min(width - wide, (left + right - wide) / 2));
      pen.fillStyle = colors.link;
      pen.fillRect(left, TICKS - 3, right - left, 3);
      pen.fillRect(at, 4, wide, TICKS - 7);
      pen.fillStyle = colors.card;
      pen.fillText(text, at + 5, 14);
    }
  }

  /* Moving */

  function show(newFrom, newTo) {
    var span = Math.max(SMALLEST_VIEW, Math.min(newTo - newFrom, most - least));
    from = Math.max(least, Math.min(newFrom, most - span));
    to = from + span;
    ask();
  }
  function zoom(factor, around) {
    var center = around === undefined ? (from + to) / 2 : around;
    show(center - (center - from) * factor, center + (to - center) * factor);
  }
  function pan(share) {
    show(from + (to - from) * share, to + (to - from) * share);
  }
  function chooseStep(index) {
    nameStep(index);
    show(view.steps[index].start, view.steps[index].end);
  }
  function nameStep(index) {
    chosenStep = index;
    stepName.textContent = view.steps[index].name + ", " + time(view.steps[index].end - view.steps[index].start);
  }
  function showSelected(close) {
    var wide = Math.max(duration[selected] * 4, SMALLEST_VIEW * 10);
    if (close) {
      show((start[selected] + end[selected]) / 2 - wide / 2, (start[selected] + end[selected]) / 2 + wide / 2);
    } else if (end[selected] < from || start[selected] > to) {
      show(start[selected] - (to - from) / 3, start[selected] + ((to - from) * 2) / 3);
    } else if (duration[selected] < (to - from) / 2000) {
      zoom(Math.min(1, Math.max(duration[selected] * 400, SPAN_VIEW) / (to - from)), start[selected]);
    }
    var row = rows[rowOf[selected]];
    if (!row.lane.pinned && (screenY(row) < pinnedBottom || screenY(row) + row.height > height)) {
      scroller.scrollTop = row.y - (pinnedBottom + height) / 2;
    }
    ask();
  }

  /* Choosing a span */

  /* Moments of the chosen step, in the unit of the axis and exact enough to tell apart what is `apart` ms apart: like
     durations, to a tenth of a microsecond. */
  function moments(values, apart) {
    var long = Math.max.apply(null, values.map(Math.abs)) >= LONG;
    var unit = long ? 1000 : 1;
    var digits = Math.max(1, Math.min(long ? 7 : 4, Math.ceil(-Math.log10(apart / unit / 100))));
    return values.map(function (value) {
      var text = (Math.abs(value) / unit).toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits });
      return (value < 0 ? "−" : "") + text + (long ? "\u00a0s" : "\u00a0ms");
    });
  }
  function isStream(index) {
    return index >= streamFirst && index < firstStall;
  }
  /* When and where the work of a stream was launched; `span` is the call if it is in the table, else -1. */
  function launchOf(index) {
    if (!isStream(index) || !launchDelay[index - streamFirst]) {
      return null;
    }
    var delay = (launchDelay[index - streamFirst] - 1) / 1e6;
    var lane = launchLane[index - streamFirst] - 1;
    var at = start[index] - delay;
    var around = lane < 0 ? [] : spansAt(lane, at + 1e-7);
    var call = around.length ? around[around.length - 1] : -1;
    return { delay: delay, time: at, lane: lane, span: call, around: around, row: call < 0 ? -1 : rowOf[call] };
  }
  function stackOf(index) {
    if (lanes[laneOf[index]].kind === "thread") {
      return spansAt(laneOf[index], start[index] + Math.min(1e-7, duration[index] / 2)).filter(function (other) {
        return other !== index && end[other] >= end[index] - 1e-6 && other < index;
      });
    }
    var launch = launchOf(index);
    return launch ? launch.around : [];
  }
  function nearestOperator(stack) {
    return stack.filter(function (index) {
      return view.categories[category[index]][0] === "cpu" && detail[index] >= 0;
    }).pop();
  }
  /* `seen`: the reader pointed at the span, so the view stays. */
  function select(index, seen) {
    selected = index;
    range = null;
    atEdge = 0;
    note.textContent = "";
    if (index >= 0) {
      if (rowOf[index] < 0) {
        pythonBox.checked = true;
        layOut();
      }
      if (!seen) {
        showSelected(false);
      }
      followSpan(start[index]);
    }
    describe();
    ask();
  }
  function add(list, term, value) {
    if (value === "" || value === null || value === undefined) {
      return;
    }
    var dt = document.createElement("dt");
    var dd = document.createElement("dd");
    dt.textContent = term;
    if (typeof value === "string") {
      dd.textContent = value;
    } else {
      value.forEach(function (node) {
        dd.appendChild(node);
      });
    }
    list.appendChild(dt);
    list.appendChild(dd);
  }
  function button(text, index) {
    var made = document.createElement("button");
    made.type = "button";
    made.className = "linklike";
    made.textContent = text;
    made.onclick = function () {
      select(index);
      canvas.focus({ preventScroll: true });
    };
    return made;
  }
  /* A phone has no Escape key. */
  function closeButton() {
    var made = document.createElement("button");
    made.type = "button";
    made.className = "btn close";
    made.textContent = "×";
    made.setAttribute("aria-label", "Close the details");
    made.onclick = function () {
      select(-1);
      canvas.focus({ preventScroll: true });
    };
    return made;
  }
  function fixLinks(numbers) {
    return numbers.slice(0, 3).map(function (number) {
      var link = document.createElement("a");
      link.href = "#" + view.fixes[number].anchor;
      link.textContent = view.fixes[number].text;
      return link;
    });
  }
  /* The work of streams that was launched while a span of a thread was open, in order of the table. */
  function launchedBy(index) {
    var work = [];
    if (index >= 0 && lanes[laneOf[index]].kind === "thread") {
      for (var other = streamFirst; other < firstStall; other++) {
        var delay = launchDelay[other - streamFirst];
        if (delay && launchLane[other - streamFirst] - 1 === laneOf[index]) {
          var at = start[other] - (delay - 1) / 1e6;
          if (at > start[index] - 5e-7 && at < Math.max(end[index], start[index] + 1e-6)) {
            work.push(other);
          }
        }
      }
    }
    return work;
  }
  function launchesOf(index) {
    var work = launchedBy(index);
    if (!work.length) {
      return "";
    }
    var total = work.reduce(function (sum, other) { return sum + duration[other]; }, 0);
    var text = document.createElement("span");
    text.textContent = counted(work.length, "kernel or copy", "kernels and copies") + ", " + time(total) + (work.length > MOST_LINKS ? "; the longest:" : ":");
    work.sort(function (a, b) { return duration[b] - duration[a]; });
    return [text].concat(work.slice(0, MOST_LINKS).map(function (other) { return button(shortName(other), other); }));
  }
  /* How often the name occurs in the chosen step, and how long all of them take. */
  function sameName(index) {
    var step = view.steps[chosenStep];
    var count = 0, total = 0;
    for (var other = 0; other < firstStall; other++) {
      if (name[other] === name[index] && laneOf[other] === laneOf[index] && start[other] >= step.start && start[other] < step.end) {
        count++;
        total += duration[other];
      }
    }
    return count < 2 ? "" : counted(count, "span") + " in the " + noun + ", " + time(total) + " in total, " + time(total / count) + " on average";
  }
  /* The duration of a span of a thread less that of the spans directly below it. */
  function selfTime(index) {
    var lane = lanes[laneOf[index]];
    var inside = 0, until = start[index];
    for (var other = index + 1; other < lane.first + lane.count && start[other] < end[index]; other++) {
      if (start[other] >= until - 1e-9) {
        until = Math.min(end[other], end[index]);
        inside += until - start[other];
      }
    }
    return inside ? time(Math.max(0, duration[index] - inside)) + " outside the spans below it" : "";
  }
  function describe() {
    details.textContent = "";
    if (range) {
      details.hidden = false;
      describeRange();
      return;
    }
    if (selected < 0) {
      details.hidden = true;
      return;
    }
    details.hidden = false;
    details.appendChild(closeButton());
    var title = document.createElement("h3");
    var lane = lanes[laneOf[selected]];
    title.textContent = (isGap(lane) ? view.idle + ": " : "") + view.names[name[selected]];
    var list = document.createElement("dl");
    var since = start[selected] - view.steps[chosenStep].start;
    var moment = moments([Math.abs(since)], Math.max(duration[selected], 1e-6))[0];
    var when = since < 0 ? ", starts " + moment + " before the " + noun : ", starts at " + moment + " of the " + noun;
    add(list, "Time", time(duration[selected]) + when);
    if (selected >= firstStall) {
      var stall = view.stalls[selected - firstStall];
      add(list, "Line", stall.place);
      add(list, "Fix", stall.fix === null ? "" : fixLinks([stall.fix]));
      add(list, "Perfetto", commandOf(stall));
    } else {
      describeSpan(list, lane);
    }
    details.appendChild(title);
    details.appendChild(list);
  }
  function isGap(lane) {
    return lane.kind === "stalls" || lane.kind === "idle";
  }
  /* The sums of a range */

  function clipped(index) {
    return Math.max(0, Math.min(end[index], range.to) - Math.max(start[index], range.from));
  }
  /* Adds the part of each shown span that lies in the range, on threads less that of the spans below it. */
  function sumsOf(isMeant) {
    var sums = {};
    lanes.forEach(function (lane) {
      var open = [];
      for (var index = lane.first; isMeant(lane) && index < lane.first + lane.count && start[index] < range.to; index++) {
        var part = clipped(index);
        if (!part || rowOf[index] < 0) {
          continue;
        }
        var sum = sums[name[index]] || (sums[name[index]] = { name: name[index], count: 0, total: 0 });
        sum.count++;
        sum.total += part;
        if (lane.kind === "thread") {
          while (open.length && end[open[open.length - 1]] <= start[index] + 1e-9) {
            open.pop();
          }
          if (open.length) {
            sums[name[open[open.length - 1]]].total -= part;
          }
          open.push(index);
        }
      }
    });
    return Object.keys(sums).map(function (key) { return sums[key]; }).sort(function (a, b) { return b.total - a.total; });
  }
  /* The time in the range in which any stream works. */
  function busyTime() {
    var inside = [];
    for (var index = streamFirst; index < firstStall; index++) {
      if (clipped(index)) {
        inside.push(index);
      }
    }
    inside.sort(function (a, b) { return start[a] - start[b]; });
    var busy = 0, until = range.from;
    inside.forEach(function (index) {
      var last = Math.min(end[index], range.to);
      busy += Math.max(0, last - Math.max(start[index], until));
      until = Math.max(until, last);
    });
    return busy;
  }
  function describeRange() {
    var whole = range.to - range.from;
    var zero = view.steps[chosenStep].start;
    details.appendChild(closeButton());
    var title = document.createElement("h3");
    title.textContent = "Range of " + time(whole);
    var list = document.createElement("dl");
    add(list, "From, to", moments([range.from - zero, range.to - zero], Math.max(whole, 1e-6)).join(" to ") + " of the " + noun);
    if (firstStall > streamFirst) {
      var busy = busyTime();
      add(list, "GPU busy", time(busy) + " (" + percent(busy / whole) + " of the range)");
    }
    details.appendChild(title);
    details.appendChild(list);
    var tables = document.createElement("div");
    tables.className = "sums";
    function addSums(caption, isMeant) {
      var sums = sumsOf(isMeant);
      if (sums.length) {
        tables.appendChild(sumTable(caption, sums, whole));
      }
    }
    addSums(view.idle + ", by main cause", isGap);
    addSums("GPU work", function (lane) { return lane.kind === "stream"; });
    addSums("Threads, self time", function (lane) { return lane.kind === "thread"; });
    details.appendChild(tables);
  }
  function sumTable(caption, sums, whole) {
    var table = document.createElement("table");
    table.createCaption().textContent = caption + (sums.length > MOST_SUMS ? ": " + MOST_SUMS + " of " + counted(sums.length, "name") : "");
    var head = table.createTHead().insertRow();
    ["Name", "Spans", "Time", "Of the range"].forEach(function (text) {
      var cell = document.createElement("th");
      cell.scope = "col";
      cell.textContent = text;
      head.appendChild(cell);
    });
    var body = table.createTBody();
    sums.slice(0, MOST_SUMS).forEach(function (sum) {
      var row = body.insertRow();
      var link = document.createElement("button");
      link.type = "button";
      link.className = "linklike";
      link.textContent = view.labels[sum.name];
      link.title = view.names[sum.name];
      link.onclick = function () {
        search.value = view.names[sum.name];
        search.oninput();
        find(1);
      };
      row.insertCell().appendChild(link);
      [sum.count.toLocaleString("en-US"), time(sum.total), percent(sum.total / whole)].forEach(function (text) {
        row.insertCell().textContent = text;
      });
    });
    return table;
  }
  function chooseRange(first, last) {
    range = first === last ? null : { from: Math.max(least, Math.min(first, last)), to: Math.min(most, Math.max(first, last)) };
    if (range) {
      selected = -1;
    }
    describe();
    ask();
  }

  /* What opens the step of a stall in Perfetto. */
  function commandOf(stall) {
    var step = view.steps.filter(function (window) {
      return window.start <= stall.start && stall.start < window.end;
    })[0];
    if (!step || !step.command) {
      return "";
    }
    var code = document.createElement("code");
    code.textContent = step.command;
    return [code];
  }
  function describeSpan(list, lane) {
    var stack = stackOf(selected);
    var launch = launchOf(selected);
    var kind = view.categories[category[selected]][1];
    if (lane.kind === "thread") {
      add(list, "Self time", selfTime(selected));
    }
    add(list, "Same name", sameName(selected));
    add(list, "What", [kind, lane.name === kind ? "" : lane.name, lane.kind === "idle" ? "" : lane.detail].filter(Boolean).join(", "));
    if (isStream(selected)) {
      var op = operator[selected - streamFirst];
      var shapes = operatorDetail[selected - streamFirst];
      add(list, "Size", detail[selected] < 0 ? "" : view.details[detail[selected]]);
      add(list, "Operator", op ? view.names[op - 1] : "");
      add(list, "Shapes", shapes ? view.details[shapes - 1] : "");
      if (launch) {
        var where = launch.lane < 0 ? "" : " on " + lanes[launch.lane].name + (launch.lane >= 0 && lanes[launch.lane].detail ? " (" + lanes[launch.lane].detail + ")" : "");
        var text = document.createElement("span");
        text.textContent = time(launch.delay) + " after the call" + where + (launch.span < 0 ? "" : ": ");
        add(list, "Launch delay", launch.span < 0 ? [text] : [text, button(shortName(launch.span), launch.span)]);
      } else {
        add(list, "Launch delay", "not known: the launch is not in the file");
      }
    } else if (lane.kind === "thread") {
      var around = nearestOperator(stack);
      add(list, "Shapes", detail[selected] < 0 ? "" : view.details[detail[selected]]);
      add(list, "Operator", around === undefined ? "" : [button(view.names[name[around]], around)]);
      add(list, "Launches", launchesOf(selected));
    }
    add(list, "Line", place[selected] < 0 ? "" : view.places[place[selected]]);
    var fixes = (place[selected] < 0 ? [] : view.placeFixes[place[selected]]).concat(view.nameFixes[name[selected]]);
    var ofCause = lane.kind === "idle" ? view.causeFixes[category[selected]] : null;
    fixes = ofCause === null ? fixes : fixes.concat([ofCause]);
    fixes = fixes.filter(function (fix, index) { return fixes.indexOf(fix) === index; });
    add(list, place[selected] >= 0 && view.placeFixes[place[selected]].length ? "Fix for this line" : "Fix", fixes.length ? fixLinks(fixes) : "");
    var shown = stack.slice(-30).reverse();
    add(list, "Stack", shown.length ? shown.map(function (index) { return button(view.names[name[index]], index); }) : "");
  }

  /* Pointer */

  function rowAt(y) {
    return rows.find(function (row) {
      return Boolean(row.lane.pinned) === y < pinnedBottom && y >= screenY(row) - 1 && y < screenY(row) + row.height + 1;
    });
  }
  /* The span under the pointer; among narrow ones the closest within three pixels. */
  function hit(event) {
    var area = canvas.getBoundingClientRect();
    var row = event.clientY - area.top < axis ? null : rowAt(event.clientY - area.top);
    if (!row || event.clientX - area.left < gutter) {
      return -1;
    }
    var at = ms(event.clientX - area.left);
    var slack = ((to - from) / (width - gutter)) * 3;
    var best = -1, distance = slack;
    for (var i = firstReaching(row, at - slack); i < row.spans.length; i++) {
      var index = row.spans[i];
      if (start[index] > at + slack) {
        break;
      }
      var away = at < start[index] ? start[index] - at : at > end[index] ? at - end[index] : 0;
      if (away < distance || (away === 0 && distance === 0)) {
        best = index;
        distance = away;
      }
    }
    return best;
  }
  /* A drag with Shift, or along the axis, chooses a range; a click on the name of a step chooses it. */
  var anchor = null; /* ms, where the range begins */
  function stepUnder(event) {
    var area = canvas.getBoundingClientRect();
    var y = event.clientY - area.top, at = ms(event.clientX - area.left);
    return axis > TICKS && y >= TICKS && y < axis ? view.steps.findIndex(function (step) { return at >= step.start && at < step.end; }) : -1;
  }
  function showTip(event, under) {
    tip.hidden = under < 0;
    if (under >= 0) {
      var area = box.getBoundingClientRect();
      tip.textContent = cut(view.names[name[under]], 200) + "\n" + time(duration[under]);
      tip.style.top = event.clientY - area.top + 18 + "px";
      tip.style.left = Math.max(0, Math.min(event.clientX - area.left + 12, area.width - tip.offsetWidth)) + "px";
    }
  }
  canvas.onpointerleave = function () {
    tip.hidden = true;
  };
  var pointers = {};
  var moved = 0;
  canvas.onpointerdown = function (event) {
    pointers[event.pointerId] = { x: event.clientX, y: event.clientY };
    moved = 0;
    tip.hidden = true;
    var area = canvas.getBoundingClientRect();
    var across = event.clientX - area.left;
    anchor = across >= gutter && (event.shiftKey || event.clientY - area.top < axis) ? ms(across) : null;
    canvas.setPointerCapture(event.pointerId);
  };
  canvas.onpointermove = function (event) {
    var before = pointers[event.pointerId];
    if (!before) {
      var under = hit(event);
      var onAxis = event.clientY - canvas.getBoundingClientRect().top < axis;
      showTip(event, event.pointerType === "mouse" ? under : -1);
      canvas.style.cursor = stepUnder(event) >= 0 ? "pointer" : onAxis || event.shiftKey ? "col-resize" : under < 0 ? "grab" : "pointer";
      return;
    }
    var ids = Object.keys(pointers);
    var change = event.clientX - before.x;
    moved += Math.abs(change) + Math.abs(event.clientY - before.y);
    if (anchor !== null && ids.length === 1) {
      if (moved > 3) {
        chooseRange(anchor, Math.max(from, Math.min(to, ms(event.clientX - canvas.getBoundingClientRect().left))));
      }
    } else if (ids.length === 2) {
      var other = pointers[ids[0] === String(event.pointerId) ? ids[1] : ids[0]];
      var area = canvas.getBoundingClientRect();
      var apart = Math.max(20, Math.abs(event.clientX - other.x));
      zoom(Math.max(20, Math.abs(before.x - other.x)) / apart, ms((event.clientX + other.x) / 2 - area.left));
    } else if (moved > 3) {
      pan(-change / (width - gutter));
    }
    pointers[event.pointerId] = { x: event.clientX, y: event.clientY };
  };
  canvas.onpointerup = function (event) {
    delete pointers[event.pointerId];
    if (moved <= 3) {
      var step = stepUnder(event);
      if (step >= 0) {
        tellStep(step);
      } else {
        select(hit(event), true);
      }
    }
    anchor = null;
  };
  canvas.onpointercancel = function (event) {
    delete pointers[event.pointerId];
  };
  canvas.ondblclick = function () {
    if (selected >= 0) {
      showSelected(true);
    }
  };
  canvas.addEventListener(
    "wheel",
    function (event) {
      var area = canvas.getBoundingClientRect();
      if (event.ctrlKey || event.metaKey) {
        event.preventDefault();
        zoom(Math.exp(event.deltaY / 300), ms(event.clientX - area.left));
      } else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
        event.preventDefault();
        pan((event.deltaX || event.deltaY) / (width - gutter));
      }
    },
    { passive: false }
  );
  scroller.onscroll = ask;

  /* Keys */

  function neighbor(direction) {
    if (selected < 0 || rowOf[selected] < 0) {
      return firstVisible();
    }
    var spans = rows[rowOf[selected]].spans;
    var at = lowerBound(spans, start[selected]);
    while (spans[at] !== selected) {
      at++;
    }
    return spans[at + direction] === undefined ? -1 : spans[at + direction];
  }
  function stepAt(time) {
    return view.steps.findIndex(function (step) { return time >= step.start && time < step.end; });
  }
  /* The first key at the edge of a step stays and says so, the second one goes on to the other step. */
  function goAlong(direction) {
    var next = neighbor(direction);
    var step = next < 0 ? -1 : stepAt(start[next]);
    var side = direction < 0 ? "first" : "last";
    if (next < 0) {
      note.textContent = "This is the " + side + " span of the row.";
    } else if (selected >= 0 && step >= 0 && step !== chosenStep && atEdge !== direction) {
      atEdge = direction;
      note.textContent = "This is the " + side + " span of the row in " + view.steps[chosenStep].name + ". Press the arrow key again to go on to " + view.steps[step].name + ".";
    } else {
      select(next);
    }
  }
  function inOtherRow(direction) {
    if (selected < 0 || rowOf[selected] < 0) {
      return firstVisible();
    }
    var row = rows[Math.max(0, Math.min(rows.length - 1, rowOf[selected] + direction))];
    var middle = (Math.max(start[selected], from) + Math.min(end[selected], to)) / 2;
    var at = lowerBound(row.spans, middle);
    if (at === 0) {
      return row.spans[0];
    }
    var before = row.spans[at - 1];
    if (at === row.spans.length || middle <= end[before] || middle - end[before] < start[row.spans[at]] - middle) {
      return before;
    }
    return row.spans[at];
  }
  function firstVisible() {
    for (var number = 0; number < rows.length; number++) {
      var spans = rows[number].spans;
      var at = Math.max(0, lowerBound(spans, from));
      if (at < spans.length && start[spans[at]] <= to) {
        return spans[at];
      }
    }
    return rows.length ? rows[0].spans[0] : -1;
  }
  canvas.onkeydown = function (event) {
    if (event.ctrlKey || event.metaKey || event.altKey) {
      return;
    }
    var center = selected >= 0 && start[selected] < to && end[selected] > from ? (Math.max(from, start[selected]) + Math.min(to, end[selected])) / 2 : undefined;
    var actions = {
      w: function () { zoom(0.7, center); },
      s: function () { zoom(1 / 0.7, center); },
      a: function () { pan(-0.2); },
      d: function () { pan(0.2); },
      "+": function () { zoom(0.7, center); },
      "-": function () { zoom(1 / 0.7, center); },
      ArrowLeft: function () { goAlong(-1); },
      ArrowRight: function () { goAlong(1); },
      ArrowUp: function () { select(inOtherRow(-1)); },
      ArrowDown: function () { select(inOtherRow(1)); },
      Home: function () { chooseStep(chosenStep); },
      PageUp: function () { tellStep(chosenStep - 1); },
      PageDown: function () { tellStep(chosenStep + 1); },
      m: function () { sumUp(); },
      "?": function () { keyHelp.showModal(); },
      l: goToOtherEnd,
      f: function () { if (selected >= 0) { showSelected(true); } },
      n: function () { find(1); },
      N: function () { find(-1); },
      "/": function () { search.focus(); },
      Enter: function () { if (selected < 0) { select(firstVisible()); } else { details.focus(); } },
      Escape: function () { search.value = ""; search.oninput(); select(-1); },
    };
    var action = actions[event.key.length === 1 && event.key !== "N" ? event.key.toLowerCase() : event.key];
    if (action) {
      event.preventDefault();
      action();
    }
  };
  /* From work of the GPU to the call that launched it, from a call to the first work that it launched. */
  function goToOtherEnd() {
    var launch = selected < 0 ? null : launchOf(selected);
    var end = launch ? launch.span : launchedBy(selected).sort(function (a, b) { return start[a] - start[b]; })[0];
    if (end === undefined || end < 0) {
      note.textContent = selected < 0 ? "" : "The file shows no launch between this span and the GPU.";
    } else {
      select(end);
    }
  }
  /* The sums of the chosen span, or of everything that is shown. */
  function sumUp() {
    if (selected >= 0) {
      chooseRange(start[selected], end[selected]);
    } else {
      chooseRange(from, to);
    }
  }
  details.onkeydown = function (event) {
    if (event.key === "Escape") {
      canvas.focus({ preventScroll: true });
      canvas.scrollIntoView({ block: "nearest" });
    } else if (event.target === details && /^([wasdflmn?+/-]|Home|ArrowLeft|ArrowRight)$/i.test(event.key)) {
      canvas.onkeydown(event); /* up and down scroll the details */
    }
  };

  /* The strip of steps and this view choose the same step. */
  function tellStrip() {
    var strip = tools.strip();
    if (strip) {
      strip.dispatchEvent(new CustomEvent("choose-step", { detail: view.steps[chosenStep].step - strip.dataset.first }));
    }
  }
  function tellStep(index) {
    if (index >= 0 && index < view.steps.length) {
      note.textContent = "";
      chooseStep(index);
      tellStrip();
    } else {
      note.textContent = "The report holds the spans of no step " + (index < 0 ? "before " : "after ") + view.steps[chosenStep].name + ".";
    }
  }
  /* A span of another step makes that the chosen one. */
  function followSpan(at) {
    var index = stepAt(at);
    if (index >= 0 && index !== chosenStep) {
      nameStep(index);
      tellStrip();
    }
  }
  function followStrip(event) {
    if (!view) {
      load();
      return;
    }
    var wanted = Number(tools.strip().dataset.first) + event.detail;
    var index = view.steps.findIndex(function (step) { return step.step === wanted; });
    if (index >= 0 && index !== chosenStep) {
      chooseStep(index);
    } else if (index < 0) {
      stepName.textContent = "The report does not hold the spans of that step. Shown: " + view.steps[chosenStep].name;
    }
    tellMissing(index < 0);
  }
  /* Below the strip: how to see a step whose spans the report lacks. */
  function tellMissing(isMissing) {
    var strip = tools.strip();
    var told = strip && document.getElementById(strip.dataset.chart + "-missing");
    if (!told) {
      return;
    }
    told.hidden = !isMissing;
    told.textContent = "The report does not hold the spans of this step.";
    var number = /\d+(?=, )/.exec(strip.getAttribute("aria-valuetext"));
    if (view.cut && number) {
      told.append(" Cut it out of the trace to see them: ");
      told.appendChild(document.createElement("code")).textContent = view.cut.join(" " + number[0] + " ");
    }
  }

  /* Search */

  /* Work of the GPU is found first, then its idle times and what threads did, then operators and calls, then Python. */
  var FOUND_FIRST = { stream: 0, idle: 1, stalls: 1, activity: 1, thread: 2 };
  function isPython(index) {
    return category[index] >= 0 && view.categories[category[index]][0] === "python" && lanes[laneOf[index]].kind === "thread";
  }
  function groupOf(index) {
    return isPython(index) ? 3 : FOUND_FIRST[lanes[laneOf[index]].kind];
  }
  function find(direction) {
    if (!hits.length) {
      return;
    }
    var after = selected < 0 ? from : start[selected];
    var at = hits.indexOf(selected);
    if (at < 0) {
      var first = groupOf(hits[0]);
      at = hits.findIndex(function (index) { return start[index] >= after && groupOf(index) === first; });
      at = at < 0 ? 0 : at;
    } else {
      at = (at + direction + hits.length) % hits.length;
    }
    select(hits[at]);
    found.textContent = (at + 1).toLocaleString("en-US") + " of " + hits.length.toLocaleString("en-US");
  }
  /* Python frames that are not shown are only found where nothing else is, or if they are asked for. */
  search.oninput = function () {
    var wanted = search.value.toLowerCase();
    var frames = [];
    matches = null;
    hits = [];
    if (wanted) {
      matches = new Uint8Array(view.names.length);
      view.names.forEach(function (text, index) {
        matches[index] = text.toLowerCase().indexOf(wanted) >= 0 ? 1 : 0;
      });
      for (var index = 0; index < start.length; index++) {
        if (matches[name[index]]) {
          (isPython(index) ? frames : hits).push(index);
        }
      }
      hits = hits.filter(isInScope);
      var hidden = scope.value === "" && !pythonBox.checked && hits.length > 0;
      if (scope.value === "python" || (scope.value === "" && !hidden)) {
        hits = hits.concat(frames);
        frames = [];
      }
      hits.sort(function (a, b) { return groupOf(a) - groupOf(b) || start[a] - start[b]; });
    }
    if (wanted && !hits.length) {
      select(-1);
    }
    var more = frames.length && scope.value === "" ? ", and " + counted(frames.length, "Python frame") : "";
    found.textContent = wanted ? counted(hits.length, "span") + more : "";
    ask();
  };
  function isInScope(index) {
    var lane = lanes[laneOf[index]].kind;
    return scope.value === "" || (scope.value === "gpu" && lane === "stream") || (scope.value === "cpu" && (lane === "thread" || lane === "activity"));
  }
  scope.onchange = search.oninput;
  search.onkeydown = function (event) {
    if (event.key === "Enter") {
      event.preventDefault();
      find(event.shiftKey ? -1 : 1);
    }
  };
  pythonBox.onchange = function () {
    layOut();
    search.oninput();
    if (selected >= 0 && rowOf[selected] < 0) {
      select(-1);
    }
  };
  [["span-next", function () { find(1); }], ["span-previous", function () { find(-1); }],
   ["span-in", function () { zoom(0.5); }], ["span-out", function () { zoom(2); }],
   ["span-sum", sumUp], ["span-help-open", function () { keyHelp.showModal(); }],
   ["span-home", function () { chooseStep(chosenStep); }]].forEach(function (pair) {
    document.getElementById(pair[0]).onclick = pair[1];
  });

  /* Loading, when the reader comes near */

  var loading = null;
  function load() {
    loading = loading || showRank().then(function () {
      box.hidden = false;
      box.parentNode.querySelector(".static").classList.add("hide");
      measure();
      var strip = tools.strip();
      if (strip && strip.getAttribute("aria-valuenow") && !strip.hidden) {
        followStrip({ detail: Number(strip.getAttribute("aria-valuenow")) - 1 });
      }
      new MutationObserver(function () { readColors(); ask(); }).observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });
      new ResizeObserver(measure).observe(scroller);
      canvas.dataset.ready = "yes";
    });
    return loading;
  }
  function showRank() {
    return tools.loadSpans().then(function (spans) {
      read(spans);
      readColors();
      about.textContent = view.about;
      search.value = found.textContent = note.textContent = "";
      matches = null;
      hits = [];
      selected = -1;
      range = null;
      describe();
      if (width) {
        layOut();
      }
      chooseStep(view.shown);
    });
  }
  document.addEventListener("choose-rank", function () {
    if (loading) {
      loading.then(showRank).then(tellStrip);
    }
  });
  document.addEventListener("choose", function (event) {
    if (event.target === tools.strip()) {
      followStrip(event);
    }
  });
  new IntersectionObserver(function (entries, observer) {
    if (entries.some(function (entry) { return entry.isIntersecting; })) {
      observer.disconnect();
      load();
    }
  }, { rootMargin: "800px" }).observe(box.parentNode);
})();
