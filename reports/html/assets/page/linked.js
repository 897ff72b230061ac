/* What a link within the page, or to it, leads to. */
(function () {
  "use strict";
  var tools = window.traceopt; /* of page/shared.js */
  var one = tools.one, all = tools.all, chosen = tools.chosen, anchor = tools.anchor;

  /* A link to report.html#DL001 opens that card, one to a row of a table shows the row. */
  function openLinked() {
    var linked = null;
    try {
      linked = document.getElementById(decodeURIComponent(anchor()));
    } catch (error) {
      /* not a valid fragment */
    }
    if (chosen.toString() && location.hash.indexOf("?") < 0) {
      history.replaceState(null, "", "#" + anchor() + "?" + chosen.toString());
    }
    all(".linked").forEach(function (row) {
      row.classList.remove("linked");
    });
    if (!linked) {
      return;
    }
    if (linked.tagName === "DETAILS") {
      linked.open = true;
    }
    for (var box = linked.closest("details"); box; box = box.parentNode.closest("details")) {
      box.open = true;
    }
    if (linked.tagName === "TR") {
      linked.classList.add("linked");
      linked.hidden = false;
      var more = linked.closest(".fold");
      if (more) {
        one(".more", more).open = true;
      }
      linked.scrollIntoView({ block: "center" });
    } else {
      linked.scrollIntoView();
    }
  }
  addEventListener("hashchange", openLinked);
  if (anchor()) {
    openLinked();
  }
})();
