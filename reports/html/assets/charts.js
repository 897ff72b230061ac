/* Draws the figures of page_figures.py by plotly.js, where the page has its own drawings until then, and in print. */
(function () {
  "use strict";
  var tools = window.traceopt; /* of main.js */
  var drawings = Array.prototype.slice.call(document.querySelectorAll(".drawing"));
  if (!document.getElementById("plotly-gz") || !window.DecompressionStream) {
    return;
  }
  var loading = null;
  var shown = []; /* {box, figure} of what is drawn */

  /* The bundle runs as a script element, which the policy of the page allows by its hash. */
  function load() {
    loading = loading || Promise.all([tools.unpackById("plotly-gz"), tools.unpackById("figures-gz")]).then(function (texts) {
      var script = document.createElement("script");
      script.textContent = texts[0];
      document.head.appendChild(script);
      return JSON.parse(texts[1]);
    });
    return loading;
  }
  /* Colors are custom properties of the page: "var(--compute)". Only what stands below the key of a color is one. */
  function withColors(part, styles, isColor) {
    if (Array.isArray(part)) {
      return part.map(function (one) {
        return withColors(one, styles, isColor);
      });
    }
    if (part && typeof part === "object") {
      return Object.keys(part).reduce(function (made, key) {
        made[key] = withColors(part[key], styles, isColor || /color(s|scale)?$/.test(key));
        return made;
      }, {});
    }
    var token = isColor && typeof part === "string" ? /^var\((--[a-z0-9-]+)\)$/.exec(part) : null;
    return token ? styles.getPropertyValue(token[1]).trim() : part;
  }
  function paint(one) {
    var figure = withColors(one.figure, getComputedStyle(document.documentElement), false);
    figure.layout.shapes = (figure.layout.shapes || []).concat(one.mark ? [withColors(one.mark, getComputedStyle(document.documentElement), false)] : []);
    figure.layout.dragmode = matchMedia("(pointer: coarse)").matches ? false : "zoom"; /* a finger scrolls the page */
    return window.Plotly.react(one.box, figure.data, figure.layout, {
      displaylogo: false, responsive: true, plotlyServerURL: "", topojsonURL: "",
      modeBarButtons: [["toImage"], ["zoom2d", "pan2d"], ["zoomIn2d", "zoomOut2d", "resetScale2d"]], /* none that sends data */
      toImageButtonOptions: { filename: "traceopt-" + one.name, scale: 2 },
    });
  }
  /* The drawing stays for print. Its slider, which the arrow keys move, marks a place of the figure. */
  function draw(drawing) {
    load().then(function (figures) {
      var name = drawing.dataset.figure;
      if (!figures[name] || drawing.classList.contains("only-print")) {
        return;
      }
      var box = document.createElement("div");
      var around = document.createElement("div");
      around.className = "figure";
      box.setAttribute("role", "group");
      box.setAttribute("aria-label", "Chart of " + name.replace(/-.*/, ""));
      around.appendChild(box);
      drawing.before(around);
      drawing.classList.add("only-print");
      var one = { name: name, box: box, figure: figures[name], mark: null };
      shown.push(one);
      paint(one).then(function () {
        around.dataset.ready = "yes";
        var slider = drawing.querySelector(".scrub");
        if (slider) {
          slider.classList.add("keys");
          around.appendChild(slider);
          follow(one, slider);
        }
      });
    });
  }
  function follow(one, slider) {
    var places = one.figure.data[0].x;
    function mark(index) {
      var half = typeof places[index] === "number" ? 0.5 : 0;
      var middle = half ? places[index] : index;
      one.mark = {
        type: "rect", yref: "paper", x0: middle - 0.5, x1: middle + 0.5, y0: 0, y1: 1, line: { color: "var(--ink)", width: 1.5 },
      };
      paint(one);
    }
    slider.addEventListener("choose", function (event) {
      mark(event.detail);
    });
    one.box.on("plotly_click", function (event) {
      var index = places.indexOf(event.points[0].x);
      if (index >= 0) {
        slider.dispatchEvent(new CustomEvent("choose-step", { detail: index }));
      }
    });
    if (slider.getAttribute("aria-valuetext") !== "none chosen") {
      mark(Number(slider.getAttribute("aria-valuenow")) - 1);
    }
  }

  new MutationObserver(function () {
    shown.forEach(paint);
  }).observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });
  var seen = new IntersectionObserver(function (entries) {
    entries.forEach(function (entry) {
      if (entry.isIntersecting) {
        seen.unobserve(entry.target);
        draw(entry.target);
      }
    });
  }, { rootMargin: "600px" });
  drawings.forEach(function (drawing) {
    seen.observe(drawing);
  });
})();
