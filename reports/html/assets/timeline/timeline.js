/* The timeline that zooms: every span of traceopt/result/sections/timeline_rows.py on a canvas. It loads the spans, and joins the modules
   beside it to the pointer, the keys and the other parts of the page. */
(function () {
  "use strict";

  var tools = window.traceopt; /* of page/shared.js */
  var canvas = document.getElementById("span-canvas");
  if (!canvas || !window.DecompressionStream) {
    return;
  }
  var box = document.getElementById("span-viewer");
  var scroller = canvas.parentNode;
  var detailsBox = document.getElementById("span-details");
  var pythonBox = document.getElementById("span-python");
  var stepName = document.getElementById("span-step");
  var note = document.getElementById("span-note");
  var keyHelp = document.getElementById("span-keys");
  var SPAN_VIEW = 0.05; /* ms; nearer than this, the view only goes by hand */

  var view = tools.timelineView(ask);
  var painter = tools.spanPainter(canvas, view);
  var search = tools.spanSearch(view, select, ask);
  var describe = tools.spanDetails(detailsBox, view, box.dataset.noun, chooseByLink, function (name) {
    search.look(name);
    search.find(1);
  });
  var asked = false;
  var atEdge = 0; /* the direction in which the next key leaves the step */

  function ask() {
    if (!asked && view.layout) {
      asked = true;
      requestAnimationFrame(function () {
        asked = false;
        painter.draw();
      });
    }
  }
  function layOut() {
    view.layout = tools.layOutSpans(view.spans, scroller, function (index) {
      return !pythonBox.checked && view.relations.isPython(index);
    });
    document.getElementById("span-extent").style.height = view.layout.bottom + "px";
    scroller.style.height = view.layout.height + "px";
    painter.resize();
    ask();
  }
  function measure() {
    if (scroller.clientWidth && (!view.layout || scroller.clientWidth !== view.layout.width)) {
      layOut();
    }
  }

  /* Choosing */

  function hasRow(index) {
    return index >= 0 && view.layout.rowOf[index] >= 0;
  }
  function rowOf(index) {
    return view.layout.rows[view.layout.rowOf[index]];
  }
  /* `seen`: the reader pointed at the span, so the view stays. */
  function select(index, seen) {
    view.selected = index;
    view.range = null;
    atEdge = 0;
    note.textContent = "";
    if (index >= 0) {
      if (!hasRow(index)) {
        pythonBox.checked = true;
        layOut();
      }
      if (!seen) {
        showSelected(false);
      }
      followSpan(view.spans.start[index]);
    }
    describe();
    ask();
  }
  function chooseByLink(index) {
    select(index);
    canvas.focus({ preventScroll: true });
  }
  function chooseRange(first, last) {
    view.chooseRange(first, last);
    describe();
  }
  /* The sums of the chosen span, or of everything that is shown. */
  function sumUp() {
    if (view.selected >= 0) {
      chooseRange(view.spans.start[view.selected], view.spans.end[view.selected]);
    } else {
      chooseRange(view.from, view.to);
    }
  }
  /* Brings the chosen span into view; `close`: as large as it can be seen with what is around it. */
  function showSelected(close) {
    var index = view.selected, layout = view.layout;
    var start = view.spans.start[index], end = view.spans.end[index], duration = view.spans.duration[index];
    var shown = view.to - view.from;
    if (close) {
      var wide = Math.max(duration * 4, view.smallest * 10);
      view.show((start + end) / 2 - wide / 2, (start + end) / 2 + wide / 2);
    } else if (end < view.from || start > view.to) {
      view.show(start - shown / 3, start + (shown * 2) / 3);
    } else if (duration < shown / 2000) {
      view.zoom(Math.min(1, Math.max(duration * 400, SPAN_VIEW) / shown), start);
    }
    var row = rowOf(index), top = layout.screenY(row);
    if (!row.lane.pinned && (top < layout.pinnedBottom || top + row.height > layout.height)) {
      scroller.scrollTop = row.y - (layout.pinnedBottom + layout.height) / 2;
    }
    ask();
  }
  /* From work of the GPU to the call that launched it, from a call to the first work that it launched. */
  function goToOtherEnd() {
    var start = view.spans.start, launch = view.selected < 0 ? null : view.relations.launchOf(view.selected);
    var end = launch ? launch.span : view.relations.launchedBy(view.selected).sort(function (a, b) { return start[a] - start[b]; })[0];
    if (end === undefined || end < 0) {
      note.textContent = view.selected < 0 ? "" : "The file shows no launch between this span and the GPU.";
    } else {
      select(end);
    }
  }

  /* Steps: the strip of steps and this view choose the same one. */

  function nameStep(number) {
    view.step = number;
    var step = view.chosenStep();
    stepName.textContent = step.name + ", " + tools.time(step.end - step.start);
  }
  function chooseStep(number) {
    nameStep(number);
    view.show(view.chosenStep().start, view.chosenStep().end);
  }
  function tellStrip() {
    var strip = tools.strip();
    if (strip) {
      strip.dispatchEvent(new CustomEvent("choose-step", { detail: view.chosenStep().step - strip.dataset.first }));
    }
  }
  function goToStep(number) {
    if (number >= 0 && number < view.spans.view.steps.length) {
      note.textContent = "";
      chooseStep(number);
      tellStrip();
    } else {
      note.textContent = "The report holds the spans of no step " + (number < 0 ? "before " : "after ") + view.chosenStep().name + ".";
    }
  }
  /* A span of another step makes that the chosen one. */
  function followSpan(at) {
    var number = view.stepAt(at);
    if (number >= 0 && number !== view.step) {
      nameStep(number);
      tellStrip();
    }
  }
  function followStrip(event) {
    if (!view.spans) {
      load();
      return;
    }
    var wanted = Number(tools.strip().dataset.first) + event.detail;
    var number = view.spans.view.steps.findIndex(function (step) { return step.step === wanted; });
    if (number >= 0 && number !== view.step) {
      chooseStep(number);
    } else if (number < 0) {
      stepName.textContent = "The report does not hold the spans of that step. Shown: " + view.chosenStep().name;
    }
    tellMissing(number < 0);
  }
  /* Below the strip: how to see a step whose spans the report lacks. */
  function tellMissing(isMissing) {
    var strip = tools.strip(), cut = view.spans.view.cut;
    var told = strip && document.getElementById(strip.dataset.chart + "-missing");
    if (!told) {
      return;
    }
    told.hidden = !isMissing;
    told.textContent = "The report does not hold the spans of this step.";
    var number = /\d+(?=, )/.exec(strip.getAttribute("aria-valuetext"));
    if (cut && number) {
      told.append(" Cut it out of the trace to see them: ");
      told.appendChild(document.createElement("code")).textContent = cut.join(" " + number[0] + " ");
    }
  }

  /* Keys */

  /* Spans beside the chosen one, -1 for none; without a chosen one, the first that is shown. */
  function neighbor(direction) {
    if (!hasRow(view.selected)) {
      return firstVisible();
    }
    var row = rowOf(view.selected);
    var next = row.spans[row.spans.indexOf(view.selected, view.layout.firstFrom(row, view.spans.start[view.selected])) + direction];
    return next === undefined ? -1 : next;
  }
  function inOtherRow(direction) {
    if (!hasRow(view.selected)) {
      return firstVisible();
    }
    var start = view.spans.start, end = view.spans.end, rows = view.layout.rows;
    var row = rows[Math.max(0, Math.min(rows.length - 1, view.layout.rowOf[view.selected] + direction))];
    var middle = middleOfSelected();
    var at = view.layout.firstFrom(row, middle);
    if (at === 0) {
      return row.spans[0];
    }
    var before = row.spans[at - 1], next = row.spans[at];
    return next === undefined || middle <= end[before] || middle - end[before] < start[next] - middle ? before : next;
  }
  function firstVisible() {
    var rows = view.layout.rows;
    var row = rows.find(function (one) { return view.spans.start[one.spans[view.layout.firstFrom(one, view.from)]] <= view.to; });
    return row ? row.spans[view.layout.firstFrom(row, view.from)] : rows.length ? rows[0].spans[0] : -1;
  }
  /* Of the part of the chosen span that is in view. */
  function middleOfSelected() {
    return (Math.max(view.spans.start[view.selected], view.from) + Math.min(view.spans.end[view.selected], view.to)) / 2;
  }
  /* The first key at the edge of a step stays and says so, the second one goes on to the other step. */
  function goAlong(direction) {
    var next = neighbor(direction), steps = view.spans.view.steps;
    var step = next < 0 ? -1 : view.stepAt(view.spans.start[next]);
    var edge = "This is the " + (direction < 0 ? "first" : "last") + " span of the row";
    if (next < 0) {
      note.textContent = edge + ".";
    } else if (view.selected >= 0 && step >= 0 && step !== view.step && atEdge !== direction) {
      atEdge = direction;
      note.textContent = edge + " in " + steps[view.step].name + ". Press the arrow key again to go on to " + steps[step].name + ".";
    } else {
      select(next);
    }
  }
  function zoomAtSelected(factor) {
    var isSeen = view.selected >= 0 && view.spans.start[view.selected] < view.to && view.spans.end[view.selected] > view.from;
    view.zoom(factor, isSeen ? middleOfSelected() : undefined);
  }
  var ACTIONS = {
    w: function () { zoomAtSelected(0.7); },
    s: function () { zoomAtSelected(1 / 0.7); },
    a: function () { view.pan(-0.2); },
    d: function () { view.pan(0.2); },
    "+": function () { zoomAtSelected(0.7); },
    "-": function () { zoomAtSelected(1 / 0.7); },
    ArrowLeft: function () { goAlong(-1); },
    ArrowRight: function () { goAlong(1); },
    ArrowUp: function () { select(inOtherRow(-1)); },
    ArrowDown: function () { select(inOtherRow(1)); },
    Home: function () { chooseStep(view.step); },
    PageUp: function () { goToStep(view.step - 1); },
    PageDown: function () { goToStep(view.step + 1); },
    m: sumUp,
    "?": function () { keyHelp.showModal(); },
    l: goToOtherEnd,
    f: function () { if (view.selected >= 0) { showSelected(true); } },
    n: function () { search.find(1); },
    N: function () { search.find(-1); },
    "/": search.focus,
    Enter: function () { if (view.selected < 0) { select(firstVisible()); } else { detailsBox.focus(); } },
    Escape: function () { search.look(""); select(-1); },
  };
  canvas.onkeydown = function (event) {
    var action = ACTIONS[event.key.length === 1 && event.key !== "N" ? event.key.toLowerCase() : event.key];
    if (action && !event.ctrlKey && !event.metaKey && !event.altKey) {
      event.preventDefault();
      action();
    }
  };
  detailsBox.onkeydown = function (event) {
    if (event.key === "Escape") {
      canvas.focus({ preventScroll: true });
      canvas.scrollIntoView({ block: "nearest" });
    } else if (event.target === detailsBox && /^([wasdflmn?+/-]|Home|ArrowLeft|ArrowRight)$/i.test(event.key)) {
      canvas.onkeydown(event); /* up and down scroll the details */
    }
  };
  pythonBox.onchange = function () {
    layOut();
    search.run();
    if (view.selected >= 0 && !hasRow(view.selected)) {
      select(-1);
    }
  };
  [["span-in", function () { view.zoom(0.5); }], ["span-out", function () { view.zoom(2); }],
   ["span-sum", sumUp], ["span-help-open", function () { keyHelp.showModal(); }],
   ["span-home", function () { chooseStep(view.step); }]].forEach(function (pair) {
    document.getElementById(pair[0]).onclick = pair[1];
  });
  tools.spanPointer(canvas, view, { select: select, chooseRange: chooseRange, goToStep: goToStep, showClose: showSelected });
  scroller.onscroll = ask;

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
      new MutationObserver(function () { painter.readColors(); ask(); }).observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });
      new ResizeObserver(measure).observe(scroller);
      canvas.dataset.ready = "yes";
    });
    return loading;
  }
  function showRank() {
    return tools.loadSpans().then(function (spans) {
      view.read(spans);
      painter.readColors();
      document.getElementById("span-answer").textContent = spans.view.answer;
      document.getElementById("span-about").textContent = spans.view.about;
      note.textContent = "";
      search.clear();
      describe();
      if (view.layout) {
        layOut();
      }
      chooseStep(spans.view.shown);
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
