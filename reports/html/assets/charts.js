/* Draws the figures of page_figures.py by plotly.js, where the page has its own drawings until then, and in print. */
(function () {
  "use strict";
  var tools = window.traceopt; /* of page/shared.js */
  var drawings = Array.prototype.slice.call(document.querySelectorAll(".drawing"));
  if (!document.getElementById("plotly-gz") || !window.DecompressionStream) {
    return;
  }
  var NARROW = 500; /* pixels: names of parts stand below such a figure, as below the drawing */
  var FEW = 3; /* names that fit above a narrow figure whose drawing has none below */
  var ROOM_ABOVE = 90; /* for these names, below the buttons of the figure */
  var loading = null;
  var shown = []; /* {name, box, figure, key, mark} of what is drawn */

  /* Each figure has its room from the start, so that nothing moves under the pointer when it is drawn. */
  var figures = tools.unpackById("figures-gz").then(function (text) {
    var every = JSON.parse(text);
    drawings.forEach(function (drawing) {
      var figure = every[drawing.dataset.figure];
      if (figure) {
        drawing.style.setProperty("--figure-height", figure.layout.height + "px");
      }
    });
    return every;
  });
  /* The bundle runs as a script element, which the policy of the page allows by its hash. */
  function load() {
    loading = loading || tools.unpackById("plotly-gz").then(function (text) {
      var script = document.createElement("script");
      script.textContent = text;
      document.head.appendChild(script);
      return window.Plotly ? figures : {}; /* without it, the drawings stay */
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
  function inPage(part) {
    return withColors(part, getComputedStyle(document.documentElement), false);
  }
  function paint(one) {
    var figure = inPage(one.figure);
    figure.layout.shapes = shapesOf(one);
    var isNarrow = one.box.clientWidth <= NARROW, hasNames = !one.key && figure.data.length <= FEW;
    figure.layout.showlegend = !isNarrow || hasNames;
    if (isNarrow && hasNames) {
      figure.layout.margin.t = ROOM_ABOVE;
    }
    figure.layout.dragmode = matchMedia("(pointer: coarse)").matches ? false : "zoom"; /* a finger scrolls the page */
    return window.Plotly.react(one.box, figure.data, figure.layout, {
      displaylogo: false, responsive: true, showTips: false, plotlyServerURL: "", topojsonURL: "",
      modeBarButtons: [["toImage"], ["zoom2d", "pan2d"], ["zoomIn2d", "zoomOut2d", "resetScale2d"]], /* none that sends data */
      toImageButtonOptions: { filename: "traceopt-" + one.name, scale: 2 },
    });
  }
  function shapesOf(one) {
    return inPage((one.figure.layout.shapes || []).concat(one.mark || []));
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
      box.setAttribute("aria-labelledby", drawing.closest("section").getAttribute("aria-labelledby"));
      around.appendChild(box);
      drawing.before(around);
      var key = drawing.querySelector(".key"), slider = drawing.querySelector(".scrub");
      if (key && box.clientWidth <= NARROW) {
        around.appendChild(key);
      }
      if (slider) {
        var focused = document.activeElement === slider; /* what is moved or hidden loses the focus */
        around.appendChild(slider);
        if (focused) {
          slider.focus();
        }
      }
      drawing.classList.add("only-print");
      var one = { name: name, box: box, figure: figures[name], key: key, mark: null };
      shown.push(one);
      paint(one).then(function () {
        around.dataset.ready = "yes";
        if (slider) {
          follow(one, slider);
        }
        one.box.on("plotly_click", function (event) {
          pick(one, slider, event.points[0]);
        });
      });
    });
  }
  /* The slider of a drawing stays for the arrow keys: it marks its place in the figure. */
  function follow(one, slider) {
    function mark() {
      var index = Number(slider.getAttribute("aria-valuenow")) - 1;
      var anchor = slider.readout.anchors[index];
      if (anchor) {
        hover(one, anchor);
        return;
      }
      var x = placesOf(one, slider)[index];
      var middle = typeof x === "number" ? x : index; /* names stand at 0, 1, 2 */
      var half = slider.readout.width ? 0.5 : 0;
      one.mark = {
        type: "rect", yref: "paper", x0: middle - half, x1: middle + half, y0: 0, y1: 1, line: { color: "var(--ink)", width: 1.5 },
      };
      window.Plotly.relayout(one.box, { shapes: shapesOf(one) });
    }
    slider.addEventListener("choose", mark);
    if (slider.getAttribute("aria-valuetext") !== "none chosen") {
      mark();
    }
  }
  /* Where the places of a slider are in a figure. */
  function placesOf(one, slider) {
    return slider.readout.width ? one.figure.data[0].x : slider.readout.at;
  }
  function hover(one, anchor) {
    one.figure.data.forEach(function (trace, curve) {
      var point = (trace.customdata || []).indexOf(anchor);
      if (point >= 0) {
        window.Plotly.Fx.hover(one.box, [{ curveNumber: curve, pointNumber: point }]);
      }
    });
  }
  /* A click leads to the row of a shape, chooses a rank, or a step or moment. */
  function pick(one, slider, point) {
    if (point.customdata) {
      location.hash = point.customdata;
    } else if (one.name === "ranks") {
      chooseRank(String(point.x));
    }
    if (slider && !point.customdata) {
      var places = placesOf(one, slider);
      var index = places.indexOf(point.x);
      if (index < 0 && typeof point.x === "number") {
        index = places.filter(function (place) { return place <= point.x; }).length - 1;
      }
      slider.dispatchEvent(new CustomEvent("choose-step", { detail: index }));
    }
  }
  function chooseRank(name) {
    var choice = document.querySelector("[data-rank-choice]");
    var found = choice && Array.prototype.find.call(choice.options, function (option) {
      return option.text.split(":")[0] === name;
    });
    if (found) {
      choice.value = found.value;
      choice.onchange();
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
