/* The spans of traceopt/result/sections/timeline_rows.py as columns, which the timeline and the flame graph read. */
(function () {
  "use strict";
  var tools = window.traceopt; /* of page/shared.js */
  var resulting = null; /* the document of the page */
  var loading = {}; /* by rank */

  /* The encoding of traceopt/result/encoding/packing.py: the bytes of each column, lowest first. */
  function columnReader(bytes) {
    var at = 0;
    return function (count) {
      var values = new Float64Array(count);
      var planes = bytes[at++];
      var unit = 1;
      for (var plane = 0; plane < planes; plane++) {
        for (var i = 0; i < count; i++) {
          values[i] += bytes[at + i] * unit;
        }
        at += count;
        unit *= 256;
      }
      return values;
    };
  }

  /* `view` is what span_view.py wrote. Of every span there is: start, end, duration (ms), name, category, place, detail
     (codes; -1: none), laneOf. Spans of streams, from streamFirst to firstStall, also have operator, operatorDetail,
     launchLane and launchDelay. Stalls come last. */
  function decode(view, table, bytes) {
    var count = 0, streamCount = 0, tick = table.tick_ns || 1;
    view.lanes.forEach(function (lane) {
      count += lane.count;
      streamCount += lane.kind === "stream" ? lane.count : 0;
    });
    var next = columnReader(bytes);
    var all = {};
    view.columns.forEach(function (column) {
      all[column] = next(count);
    });
    view.streamColumns.forEach(function (column) {
      all[column] = next(streamCount);
    });
    var total = count + view.stalls.length;
    var spans = {
      view: view, lanes: [], streamFirst: count - streamCount, firstStall: count,
      start: new Float64Array(total), end: new Float64Array(total), duration: new Float64Array(total),
      name: new Int32Array(total), category: new Int32Array(total), place: new Int32Array(total),
      detail: new Int32Array(total), laneOf: new Int32Array(total),
      operator: all.operator, operatorDetail: all.operator_detail, launchLane: all.launch_thread,
      launchDelay: all.launch_delay.map(function (delay) { return delay && (delay - 1) * tick + 1; }),
    };
    var index = 0;
    view.lanes.forEach(function (lane, number) {
      var now = 0;
      spans.lanes.push({ kind: lane.kind, name: lane.name, detail: lane.detail, first: index, count: lane.count });
      for (var last = index + lane.count; index < last; index++) {
        now += all.start[index] * tick;
        spans.start[index] = now / 1e6;
        spans.duration[index] = all.duration[index] * tick / 1e6;
        spans.end[index] = spans.start[index] + spans.duration[index];
        spans.name[index] = all.name[index];
        spans.category[index] = all.category[index];
        spans.place[index] = all.place[index] - 1;
        spans.detail[index] = all.detail[index] - 1;
        spans.laneOf[index] = number;
      }
    });
    addStalls(spans);
    addCallers(spans);
    return spans;
  }

  /* Stalls are spans of a lane of their own, so that they are found and chosen like spans. */
  function addStalls(spans) {
    var view = spans.view;
    if (!view.stalls.length) {
      return;
    }
    var labels = {};
    view.stalls.sort(function (a, b) {
      return a.start - b.start;
    });
    view.stalls.forEach(function (stall, number) {
      var index = spans.firstStall + number;
      if (labels[stall.label] === undefined) {
        labels[stall.label] = view.names.indexOf(stall.label);
      }
      if (labels[stall.label] < 0) {
        labels[stall.label] = view.names.length;
        view.names.push(stall.label);
        view.labels.push(stall.label);
        view.nameFixes.push([]);
      }
      spans.start[index] = stall.start;
      spans.end[index] = stall.end;
      spans.duration[index] = stall.end - stall.start;
      spans.name[index] = labels[stall.label];
      spans.category[index] = spans.place[index] = spans.detail[index] = -1;
      spans.laneOf[index] = spans.lanes.length;
    });
    spans.lanes.push({ kind: "stalls", name: view.idle, detail: "longest", first: spans.firstStall, count: view.stalls.length });
  }

  /* caller: of each span of a thread the span around it, -1 for none. openAt(lane, time): the spans of a thread that are
     open then, outermost first. */
  function addCallers(spans) {
    var start = spans.start, end = spans.end;
    var caller = new Int32Array(spans.firstStall).fill(-1);
    spans.lanes.forEach(function (lane) {
      var open = -1;
      for (var index = lane.first; lane.kind === "thread" && index < lane.first + lane.count; index++) {
        while (open >= 0 && end[open] <= start[index] + 1e-9) {
          open = caller[open];
        }
        caller[index] = open;
        open = index;
      }
    });
    spans.caller = caller;
    spans.openAt = function (number, at) {
      var lane = spans.lanes[number];
      var low = lane.first, high = lane.first + lane.count;
      while (low < high) {
        var middle = (low + high) >> 1;
        if (start[middle] <= at) {
          low = middle + 1;
        } else {
          high = middle;
        }
      }
      var around = [];
      for (var index = low - 1 >= lane.first ? low - 1 : -1; index >= 0; index = caller[index]) {
        if (end[index] > at) {
          around.unshift(index);
        }
      }
      return around;
    };
  }

  /* A view has only those texts that are not shown as in the document. */
  function withTexts(view, table) {
    view.names = Object.assign(table.names.slice(), view.names);
    view.details = Object.assign(table.details.slice(), view.details);
    view.labels = Object.assign(table.labels.map(function (label, place) { return label || table.names[place]; }), view.labels);
    return view;
  }

  /* The spans of the chosen rank. */
  tools.loadSpans = function () {
    var rank = tools.rank;
    resulting = resulting || tools.unpackText(JSON.parse(document.getElementById("traceopt-result").textContent).document).then(JSON.parse);
    loading[rank] = loading[rank] || Promise.all([
      tools.unpackById(rank ? "spans-" + rank + "-gz" : "spans-gz"),
      resulting.then(function (result) {
        var table = (rank ? result.rank_views[rank - 1] : result.timeline).table;
        return Promise.all([table, tools.unpackBytes(table.columns)]);
      }),
    ]).then(function (parts) {
      var table = parts[1][0];
      return decode(withTexts(JSON.parse(parts[0]), table), table, parts[1][1]);
    });
    return loading[rank];
  };
})();
