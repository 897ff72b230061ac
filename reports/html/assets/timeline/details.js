/* What the timeline says of the chosen span or range, below the canvas. All names are set as text. */
(function () {
  "use strict";
  var tools = window.traceopt; /* of page/shared.js */
  var time = tools.time, percent = tools.percent, counted = tools.counted; /* of units.js */
  var LEAST_APART = 1e-6; /* ms */
  var MOST_CALLS = 30; /* of a stack */
  var MOST_FIXES = 3;
  var MOST_LINKS = 6;

  /* `box`: where it stands. `view`: of view.js. `noun`: "step" or "recording". `choose(span)` is called for a link to a
     span, and with -1 to close; `search(name)` for the name of a sum. Gives the function that describes what is chosen. */
  tools.spanDetails = function (box, view, noun, choose, search) {
    var sums = tools.spanSums(view);

    function make(tag, text, className) {
      var made = document.createElement(tag);
      made.textContent = text;
      made.className = className || "";
      return made;
    }
    function button(text, className, onclick) {
      var made = make("button", text, className);
      made.type = "button";
      made.onclick = onclick;
      return made;
    }
    function linkTo(index, text) {
      return button(text, "linklike", function () { choose(index); });
    }
    function nameOf(index) {
      return view.spans.view.names[view.spans.name[index]];
    }
    function shortName(index) {
      return view.spans.view.labels[view.spans.name[index]];
    }
    /* A term and its value, a text or nodes; nothing for an empty value. */
    function add(list, term, value) {
      if (value && value.length) {
        var meaning = document.createElement("dd");
        meaning.append.apply(meaning, typeof value === "string" ? [value] : value);
        list.append(make("dt", term), meaning);
      }
    }
    /* Moments of the chosen step, in the unit of the axis and exact enough to tell apart what is `apart` ms apart: like
       durations, to a tenth of a microsecond. */
    function moments(values, apart) {
      var long = Math.max.apply(null, values.map(Math.abs)) >= tools.LONG;
      var unit = long ? 1000 : 1;
      var digits = Math.max(1, Math.min(long ? 7 : 4, Math.ceil(-Math.log10(Math.max(apart, LEAST_APART) / unit / 100))));
      return values.map(function (value) {
        var text = (Math.abs(value) / unit).toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits });
        return (value < 0 ? "−" : "") + text + (long ? "\u00a0s" : "\u00a0ms");
      });
    }
    function fixLinks(numbers) {
      return numbers.slice(0, MOST_FIXES).map(function (number) {
        var fix = view.spans.view.fixes[number];
        var link = make("a", fix.text);
        link.href = "#" + fix.anchor;
        return link;
      });
    }

    /* A span */

    function describeSpan() {
      var index = view.selected, spans = view.spans;
      var lane = spans.lanes[spans.laneOf[index]];
      var since = spans.start[index] - view.chosenStep().start;
      var moment = moments([Math.abs(since)], spans.duration[index])[0];
      var list = document.createElement("dl");
      var when = since < 0 ? ", starts " + moment + " before the " + noun : ", starts at " + moment + " of the " + noun;
      add(list, "Time", time(spans.duration[index]) + when);
      if (index >= spans.firstStall) {
        describeStall(list, spans.view.stalls[index - spans.firstStall]);
      } else {
        describeWork(list, index, lane);
      }
      box.append(make("h3", (sums.isGap(lane) ? spans.view.idle + ": " : "") + nameOf(index)), list);
    }
    function describeStall(list, stall) {
      var step = view.spans.view.steps[view.stepAt(stall.start)];
      add(list, "Line", stall.place);
      add(list, "Fix", stall.fix === null ? "" : fixLinks([stall.fix]));
      add(list, "Perfetto", step && step.command ? [make("code", step.command)] : "");
    }
    function describeWork(list, index, lane) {
      var spans = view.spans, table = spans.view, relations = view.relations;
      var stack = relations.stackOf(index);
      var category = spans.category[index], place = spans.place[index], kind = table.categories[category][1];
      if (lane.kind === "thread") {
        var below = relations.timeBelow(index);
        add(list, "Self time", below ? time(Math.max(0, spans.duration[index] - below)) + " outside the spans below it" : "");
      }
      add(list, "Same name", sameName(index));
      add(list, "What", [kind, lane.name === kind ? "" : lane.name, lane.kind === "idle" ? "" : lane.detail].filter(Boolean).join(", "));
      if (relations.isStream(index)) {
        describeStreamWork(list, index);
      } else if (lane.kind === "thread") {
        var around = relations.nearestOperator(stack);
        add(list, "Shapes", spans.detail[index] < 0 ? "" : table.details[spans.detail[index]]);
        add(list, "Operator", around === undefined ? "" : [linkTo(around, nameOf(around))]);
        add(list, "Launches", launches(index));
      }
      add(list, "Line", place < 0 ? "" : table.places[place]);
      var ofPlace = place < 0 ? [] : table.placeFixes[place];
      var ofCause = lane.kind === "idle" && table.causeFixes[category] !== null ? [table.causeFixes[category]] : [];
      var fixes = Array.from(new Set(ofPlace.concat(table.nameFixes[spans.name[index]], ofCause)));
      add(list, ofPlace.length ? "Fix for this line" : "Fix", fixLinks(fixes));
      add(list, "Stack", stack.slice(-MOST_CALLS).reverse().map(function (call) { return linkTo(call, nameOf(call)); }));
    }
    function describeStreamWork(list, index) {
      var spans = view.spans, table = spans.view, launch = view.relations.launchOf(index);
      var operator = spans.operator[index - spans.streamFirst], shapes = spans.operatorDetail[index - spans.streamFirst];
      add(list, "Size", spans.detail[index] < 0 ? "" : table.details[spans.detail[index]]);
      add(list, "Operator", operator ? table.names[operator - 1] : "");
      add(list, "Shapes", shapes ? table.details[shapes - 1] : "");
      if (!launch) {
        add(list, "Launch delay", "not known: the launch is not in the file");
        return;
      }
      var lane = launch.lane < 0 ? null : spans.lanes[launch.lane];
      var where = lane ? " on " + lane.name + (lane.detail ? " (" + lane.detail + ")" : "") : "";
      var text = make("span", time(launch.delay) + " after the call" + where + (launch.span < 0 ? "" : ": "));
      add(list, "Launch delay", launch.span < 0 ? [text] : [text, linkTo(launch.span, shortName(launch.span))]);
    }
    /* How often the name occurs in the chosen step, and how long all of them take. */
    function sameName(index) {
      var same = view.relations.sameName(index, view.chosenStep());
      var mean = time(same.total / same.count);
      return same.count < 2 ? "" : counted(same.count, "span") + " in the " + noun + ", " + time(same.total) + " in total, " + mean + " on average";
    }
    function launches(index) {
      var duration = view.spans.duration, work = view.relations.launchedBy(index);
      if (!work.length) {
        return "";
      }
      var total = work.reduce(function (sum, other) { return sum + duration[other]; }, 0);
      var text = counted(work.length, "kernel or copy", "kernels and copies") + ", " + time(total);
      work.sort(function (a, b) { return duration[b] - duration[a]; });
      return [make("span", text + (work.length > MOST_LINKS ? "; the longest:" : ":"))].concat(
        work.slice(0, MOST_LINKS).map(function (other) { return linkTo(other, shortName(other)); })
      );
    }

    /* A range */

    function describeRange() {
      var range = view.range, whole = range.to - range.from, zero = view.chosenStep().start;
      var list = document.createElement("dl"), tables = make("div", "", "sums");
      add(list, "From, to", moments([range.from - zero, range.to - zero], whole).join(" to ") + " of the " + noun);
      if (view.spans.firstStall > view.spans.streamFirst) {
        var busy = sums.busyTime();
        add(list, "GPU busy", time(busy) + " (" + percent(busy / whole) + " of the range)");
      }
      sums.groups().forEach(function (group) {
        tables.append(sumTable(group, whole));
      });
      box.append(make("h3", "Range of " + time(whole)), list, tables);
    }
    function sumTable(group, whole) {
      var table = document.createElement("table"), body = table.createTBody();
      var left = group.sums.length > sums.MOST ? ": " + sums.MOST + " of " + counted(group.sums.length, "name") : "";
      table.createCaption().textContent = group.title + left;
      var head = table.createTHead().insertRow();
      ["Name", "Spans", "Time", "Of the range"].forEach(function (text) {
        var cell = make("th", text);
        cell.scope = "col";
        head.append(cell);
      });
      group.sums.slice(0, sums.MOST).forEach(function (sum) {
        var row = body.insertRow(), name = view.spans.view.names[sum.name];
        var link = button(view.spans.view.labels[sum.name], "linklike", function () { search(name); });
        link.title = name;
        row.insertCell().append(link);
        [sum.count.toLocaleString("en-US"), time(sum.total), percent(sum.total / whole)].forEach(function (text) {
          row.insertCell().textContent = text;
        });
      });
      return table;
    }

    return function describe() {
      box.textContent = "";
      box.hidden = !view.range && view.selected < 0;
      if (box.hidden) {
        return;
      }
      var close = button("×", "btn close", function () { choose(-1); }); /* a phone has no Escape key */
      close.setAttribute("aria-label", "Close the details");
      box.append(close);
      if (view.range) {
        describeRange();
      } else {
        describeSpan();
      }
    };
  };
})();
