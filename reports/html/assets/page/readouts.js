/* What the charts say under the pointer. */
(function () {
  "use strict";
  var tools = window.traceopt; /* of page/shared.js */
  var one = tools.one, all = tools.all, unpackById = tools.unpackById;

  /* Charts with places (steps, ranks, moments): the pointer or the keys choose one, and the readout describes it. */
  function scrub(box, readout) {
    var marker = one("i", box);
    var output = document.getElementById(box.dataset.chart + "-readout");
    var chosen = -1;
    function choose(index) {
      index = Math.max(0, Math.min(readout.text.length - 1, index));
      if (index === chosen) {
        return;
      }
      chosen = index;
      marker.className = readout.width ? "" : "line";
      marker.style.left = readout.left[index] + "%";
      marker.style.width = readout.width + "%";
      marker.hidden = false;
      box.setAttribute("aria-valuenow", index + 1);
      box.setAttribute("aria-valuetext", readout.text[index]);
      output.textContent = readout.text[index];
      box.dispatchEvent(new CustomEvent("choose", { detail: index, bubbles: true }));
    }
    function at(event) {
      var place = box.getBoundingClientRect();
      var percent = ((event.clientX - place.left) / place.width) * 100;
      var index = 0;
      while (index + 1 < readout.left.length && readout.left[index + 1] <= percent) {
        index++;
      }
      return index;
    }
    box.onpointerdown = function (event) {
      choose(at(event));
    };
    box.onpointermove = function (event) {
      if (event.buttons || !readout.width) {
        choose(at(event));
      }
    };
    box.onkeydown = function (event) {
      var far = Math.max(2, Math.round(readout.text.length / 10));
      var index = {
        ArrowLeft: chosen - 1, ArrowDown: chosen - 1, ArrowRight: chosen + 1, ArrowUp: chosen + 1,
        PageDown: chosen - far, PageUp: chosen + far, Home: 0, End: readout.text.length - 1,
      }[event.key];
      if (event.key === "Enter" && readout.anchors[chosen]) {
        location.hash = readout.anchors[chosen];
      }
      if (index !== undefined && !event.ctrlKey && !event.metaKey && !event.altKey) {
        event.preventDefault();
        choose(index);
      }
    };
    box.addEventListener("choose-step", function (event) {
      choose(event.detail);
    });
    box.dataset.first = readout.first;
    box.readout = readout;
    box.setAttribute("aria-valuemax", readout.text.length);
    box.setAttribute("aria-valuetext", "none chosen");
    marker.hidden = true;
    box.hidden = false;
    output.hidden = false;
    if (readout.chosen !== null) {
      choose(readout.chosen);
    }
  }
  if (one("#readouts-gz") && window.DecompressionStream) {
    unpackById("readouts-gz").then(function (text) {
      var readouts = JSON.parse(text);
      all(".scrub").forEach(function (box) {
        scrub(box, readouts[box.dataset.chart]);
      });
    });
  }
})();
