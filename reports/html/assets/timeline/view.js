/* What the timeline shows: a range of time, the chosen step, span and range, and what was searched for. */
(function () {
  "use strict";
  var SMALLEST = 2e-5; /* ms */

  /* `changed()` is called whenever something has to be drawn. The other modules read:

     spans             of the chosen rank, as spans.js decodes them; null until they are
     relations         of these spans, by relations.js
     layout            of these spans, by layout.js
     from, to          ms, what is in view
     step              the number of the chosen step among those in the table
     selected          the chosen span, -1 for none
     range             {from, to} in ms, whose sums are shown, or null
     matches           by code of a name: 1 if it is searched for; null without a search */
  window.traceopt.timelineView = function (changed) {
    var least = 0, most = 1; /* ms, of all spans and steps */
    var view = {
      spans: null, relations: null, layout: null, from: 0, to: 1, step: 0, selected: -1, range: null, matches: null,
      smallest: SMALLEST,
    };

    view.read = function (spans) {
      view.spans = spans;
      view.relations = window.traceopt.spanRelations(spans);
      view.selected = -1;
      view.range = view.matches = null;
      least = spans.view.steps[0].start;
      most = spans.view.steps[spans.view.steps.length - 1].end;
      for (var index = 0; index < spans.firstStall; index++) {
        least = Math.min(least, spans.start[index]);
        most = Math.max(most, spans.end[index]);
      }
    };
    /* The chosen step: {step, name, start, end, command}. */
    view.chosenStep = function () {
      return view.spans.view.steps[view.step];
    };
    view.stepAt = function (time) {
      return view.spans.view.steps.findIndex(function (step) { return time >= step.start && time < step.end; });
    };
    view.x = function (ms) {
      return view.layout.gutter + ((ms - view.from) / (view.to - view.from)) * (view.layout.width - view.layout.gutter);
    };
    view.msAt = function (pixel) {
      return view.from + (pixel - view.layout.gutter) * view.msPerPixel();
    };
    view.msPerPixel = function () {
      return (view.to - view.from) / (view.layout.width - view.layout.gutter);
    };
    view.show = function (from, to) {
      var span = Math.max(SMALLEST, Math.min(to - from, most - least));
      view.from = Math.max(least, Math.min(from, most - span));
      view.to = view.from + span;
      changed();
    };
    view.zoom = function (factor, around) {
      var center = around === undefined ? (view.from + view.to) / 2 : around;
      view.show(center - (center - view.from) * factor, center + (view.to - center) * factor);
    };
    view.pan = function (share) {
      var by = (view.to - view.from) * share;
      view.show(view.from + by, view.to + by);
    };
    /* A range without width is none. */
    view.chooseRange = function (first, last) {
      var ends = { from: Math.max(least, Math.min(first, last)), to: Math.min(most, Math.max(first, last)) };
      view.range = first === last ? null : ends;
      view.selected = view.range ? -1 : view.selected;
      changed();
    };
    return view;
  };
})();
