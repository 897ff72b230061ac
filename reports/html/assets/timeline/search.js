/* The search of the timeline: spans by name. */
(function () {
  "use strict";
  var tools = window.traceopt; /* of page/shared.js */
  /* Work of the GPU is found first, then its idle times and what threads did, then operators and calls, then Python. */
  var FOUND_FIRST = { stream: 0, idle: 1, stalls: 1, activity: 1, thread: 2 };
  var PYTHON_LAST = 3;

  /* `view`: of view.js. `select(span)` chooses one, `changed()` draws again. */
  tools.spanSearch = function (view, select, changed) {
    var box = document.getElementById("span-search");
    var scope = document.getElementById("span-scope");
    var pythonBox = document.getElementById("span-python");
    var found = document.getElementById("span-found");
    var hits = []; /* by group, and in each in order of time */

    function kindOf(index) {
      return view.spans.lanes[view.spans.laneOf[index]].kind;
    }
    function groupOf(index) {
      return view.relations.isPython(index) ? PYTHON_LAST : FOUND_FIRST[kindOf(index)];
    }
    function isInScope(index) {
      var kind = kindOf(index);
      return scope.value === "" || (scope.value === "gpu" && kind === "stream") || (scope.value === "cpu" && (kind === "thread" || kind === "activity"));
    }
    /* Python frames that are not shown are only found where nothing else is, or if they are asked for. */
    function run() {
      var wanted = box.value.toLowerCase(), frames = [];
      hits = [];
      view.matches = wanted ? Uint8Array.from(view.spans.view.names, function (text) { return text.toLowerCase().includes(wanted); }) : null;
      for (var index = 0; wanted && index < view.spans.start.length; index++) {
        if (view.matches[view.spans.name[index]]) {
          (view.relations.isPython(index) ? frames : hits).push(index);
        }
      }
      hits = hits.filter(isInScope);
      var hidden = scope.value === "" && !pythonBox.checked && hits.length > 0;
      if (scope.value === "python" || (scope.value === "" && !hidden)) {
        hits = hits.concat(frames);
        frames = [];
      }
      hits.sort(function (a, b) { return groupOf(a) - groupOf(b) || view.spans.start[a] - view.spans.start[b]; });
      if (wanted && !hits.length) {
        select(-1);
      }
      var more = frames.length && scope.value === "" ? ", and " + tools.counted(frames.length, "Python frame") : "";
      found.textContent = wanted ? tools.counted(hits.length, "span") + more : "";
      changed();
    }
    /* Chooses the next match in a direction, or the first one after what is chosen or shown. */
    function find(direction) {
      if (!hits.length) {
        return;
      }
      var after = view.selected < 0 ? view.from : view.spans.start[view.selected];
      var at = hits.indexOf(view.selected);
      if (at < 0) {
        var first = groupOf(hits[0]);
        at = Math.max(0, hits.findIndex(function (index) { return view.spans.start[index] >= after && groupOf(index) === first; }));
      } else {
        at = (at + direction + hits.length) % hits.length;
      }
      select(hits[at]);
      found.textContent = (at + 1).toLocaleString("en-US") + " of " + hits.length.toLocaleString("en-US");
    }
    function look(text) {
      box.value = text;
      run();
    }
    /* For the spans of another rank. */
    function clear() {
      box.value = found.textContent = "";
      hits = [];
    }
    box.oninput = scope.onchange = run;
    box.onkeydown = function (event) {
      if (event.key === "Enter") {
        event.preventDefault();
        find(event.shiftKey ? -1 : 1);
      }
    };
    document.getElementById("span-next").onclick = function () { find(1); };
    document.getElementById("span-previous").onclick = function () { find(-1); };
    return { run: run, find: find, look: look, clear: clear, focus: function () { box.focus(); } };
  };
})();
