/* Times, shares and counts as text, as in traceopt/result/words/quantities.py. */
(function () {
  "use strict";
  var tools = window.traceopt; /* of page/shared.js */
  var LONG = 10000; /* ms; longer times are in seconds */

  function time(value) {
    if (value >= 1) {
      var long = value >= LONG - 0.05;
      return (long ? value / 1000 : value).toLocaleString("en-US", { minimumFractionDigits: 1, maximumFractionDigits: 1 }) + (long ? "\u00a0s" : "\u00a0ms");
    }
    return (value * 1000).toLocaleString("en-US", { maximumFractionDigits: value < 0.01 ? 2 : 1 }) + "\u00a0µs";
  }
  /* Only the whole is 100%. */
  function percent(share) {
    if (share > 0.995 && share < 0.9999995) {
      return share >= 0.9995 ? ">99.9%" : (share * 100).toFixed(1) + "%";
    }
    return share > 0 && share < 0.001 ? "<0.1%" : (share * 100).toLocaleString("en-US", { maximumFractionDigits: share < 0.1 ? 1 : 0 }) + "%";
  }
  function counted(count, single, several) {
    return count.toLocaleString("en-US") + " " + (count === 1 ? single : several || single + "s");
  }
  function cutText(text, letters) {
    return text.length <= letters ? text : text.slice(0, Math.max(1, letters - 1)) + "…";
  }
  tools.LONG = LONG;
  tools.time = time;
  tools.percent = percent;
  tools.counted = counted;
  tools.cutText = cutText;
})();
