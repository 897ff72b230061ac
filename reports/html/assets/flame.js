/* The flame graph: nodes as boxes below their callers, widths by host time or by the GPU time launched. */
(function () {
  "use strict";
  var tools = window.traceopt; /* of main.js */
  var graph = document.getElementById("flame-graph");
  if (!graph || !window.DecompressionStream) {
    if (graph) {
      graph.closest("section").hidden = true;
    }
    return;
  }
  var details = document.getElementById("flame-details");
  var search = document.getElementById("flame-search");
  var found = document.getElementById("flame-found");
  var userBox = document.getElementById("flame-user");
  var valueBox = document.getElementById("flame-value");
  var ROW = 21; /* pixels */
  var SMALLEST = 0.001; /* of the width */
  var MOST_LISTED = 8;
  var view = null;
  var root = null; /* of the tree of merged nodes that is drawn */
  var zoomed = null;
  var boxes = [];

  function time(ms) {
    var unit = ms < 1 ? "µs" : ms < 10000 ? "ms" : "s";
    return Number((unit === "µs" ? ms * 1000 : unit === "s" ? ms / 1000 : ms).toPrecision(3)).toLocaleString("en-US") + "\u00a0" + unit;
  }
  function share(part, whole) {
    return whole > 0 ? Number((part / whole * 100).toPrecision(2)) + "\u00a0%" : "–";
  }
  /* The tree as it is drawn. Nodes that are left out are part of their callers, and equal callees become one. */
  function build() {
    var merged = [];
    root = { name: -1, parent: null, children: {}, nodes: [], total: 0, gpuTotal: 0 };
    view.parent.forEach(function (above, node) {
      var parent = above < 0 ? root : merged[above];
      if (userBox.checked && view.kind[node] !== "user") {
        merged[node] = parent;
      } else {
        var key = view.kind[node] + view.frame[node];
        merged[node] = parent.children[key] = parent.children[key] || {
          name: view.frame[node], kind: view.kind[node], color: view.color[node], parent: parent, children: {}, nodes: [], total: 0, gpuTotal: 0,
        };
        merged[node].nodes.push(node);
        merged[node].total += view.total[node];
        merged[node].gpuTotal += view.gpuTotal[node];
      }
      if (above < 0) {
        root.total += view.total[node];
        root.gpuTotal += view.gpuTotal[node];
      }
    });
    root.total = Math.max(root.total, view.duration);
    zoomed = root;
  }
  function value() {
    return valueBox ? valueBox.value : "total";
  }
  function childrenOf(node) {
    var key = value();
    return Object.keys(node.children).map(function (child) {
      return node.children[child];
    }).filter(function (child) {
      return child[key] > 0;
    }).sort(function (a, b) {
      return b[key] - a[key];
    });
  }
  function matches(node) {
    var text = search.value.trim().toLowerCase();
    return text !== "" && view.frames[node.name].toLowerCase().indexOf(text) >= 0;
  }
  function addBox(node, left, width, level) {
    var box = document.createElement("div");
    var label = view.labels[node.name];
    var times = time(node.total) + (view.gpu ? ", GPU " + time(node.gpuTotal) : "");
    box.className = "flame-box flame-look flame-" + node.kind + (matches(node) ? " match" : "");
    box.dataset.color = node.color;
    box.style.setProperty("--c", "var(--" + node.color + ")");
    box.style.left = left * 100 + "%";
    box.style.width = width * 100 + "%";
    box.style.top = (level - 1) * ROW + "px";
    box.title = view.frames[node.name] + "\n" + times;
    box.textContent = width > 0.02 ? label : "";
    box.tabIndex = boxes.length ? -1 : 0;
    box.setAttribute("role", "treeitem");
    box.setAttribute("aria-level", level);
    box.setAttribute("aria-selected", String(node === zoomed));
    box.setAttribute("aria-label", label + ", " + times);
    box.onclick = function () {
      choose(node);
    };
    boxes.push({ node: node, box: box });
    graph.appendChild(box);
  }
  function draw() {
    var key = value();
    var depth = 0;
    graph.textContent = "";
    boxes = [];
    var callers = [];
    for (var node = zoomed; node && node !== root; node = node.parent) {
      callers.unshift(node);
    }
    callers.forEach(function (caller, index) {
      addBox(caller, 0, 1, index + 1);
    });
    depth = callers.length;
    (function below(parent, left, level, scale) {
      childrenOf(parent).forEach(function (child) {
        var width = child[key] * scale;
        if (width >= SMALLEST) {
          addBox(child, left, width, level);
          depth = Math.max(depth, level);
          below(child, left, level + 1, scale);
        }
        left += width;
      });
    })(zoomed, 0, depth + 1, zoomed[key] > 0 ? 1 / zoomed[key] : 0);
    graph.style.height = Math.max(1, depth) * ROW + "px";
    var count = boxes.filter(function (one) {
      return matches(one.node);
    }).length;
    found.textContent = search.value.trim() ? count + (count === 1 ? " frame" : " frames") : "";
  }
  function choose(node) {
    zoomed = node;
    draw();
    tell();
    focusOn(node);
  }
  function focusOn(node) {
    boxes.forEach(function (one) {
      one.box.tabIndex = one.node === node ? 0 : -1;
      if (one.node === node) {
        one.box.focus();
      }
    });
  }
  function add(list, term, nodes) {
    var dt = document.createElement("dt");
    var dd = document.createElement("dd");
    dt.textContent = term;
    nodes.forEach(function (node) {
      dd.appendChild(typeof node === "string" ? document.createTextNode(node) : node);
    });
    list.appendChild(dt);
    list.appendChild(dd);
  }
  /* The operators or kernels below the chosen frame, longest first, each name once. */
  function below(kind, times) {
    var inside = {};
    var totals = {};
    zoomed.nodes.forEach(function (node) {
      inside[node] = true;
    });
    view.parent.forEach(function (above, node) {
      var counted = inside[above] === kind;
      if (inside[above]) {
        inside[node] = inside[node] || (counted ? kind : view.kind[node] === kind ? kind : true);
        if (view.kind[node] === kind && !counted) {
          totals[view.frame[node]] = (totals[view.frame[node]] || 0) + times[node];
        }
      }
    });
    return Object.keys(totals).filter(function (frame) {
      return totals[frame] > 0;
    }).sort(function (a, b) {
      return totals[b] - totals[a];
    }).slice(0, MOST_LISTED).map(function (frame) {
      var row = document.createElement("div");
      row.textContent = view.labels[frame] + " – " + time(totals[frame]);
      return row;
    });
  }
  function link(anchor, text) {
    var to = document.createElement("a");
    to.href = "#" + anchor;
    to.textContent = text;
    return to;
  }
  function tell() {
    details.textContent = "";
    details.hidden = zoomed === root;
    if (zoomed === root) {
      return;
    }
    var title = document.createElement("h3");
    var list = document.createElement("dl");
    title.textContent = view.frames[zoomed.name];
    var own = zoomed.nodes.reduce(function (sum, node) {
      return sum + view.self[node];
    }, 0);
    add(list, "Host", [time(zoomed.total) + ", " + share(zoomed.total, view.duration) + " of the step; " + time(own) + " outside its callees"]);
    if (view.gpu) {
      add(list, "GPU", [time(zoomed.gpuTotal) + " launched"]);
    }
    [["operator", view.total, "Operators", "ops"], ["kernel", view.gpuTotal, "Kernels", "kernels"]].forEach(function (one) {
      var rows = below(one[0], one[1]);
      if (rows.length) {
        add(list, one[2], rows.concat([link(one[3], "All " + one[2].toLowerCase())]));
      }
    });
    details.appendChild(title);
    details.appendChild(list);
  }
  graph.onkeydown = function (event) {
    var at = boxes.findIndex(function (one) {
      return one.box === document.activeElement;
    });
    if (at < 0) {
      return;
    }
    var node = boxes[at].node;
    var shown = boxes.map(function (one) {
      return one.node;
    });
    var neighbors = shown.filter(function (other) {
      return other.parent === node.parent;
    });
    var target = {
      ArrowUp: node.parent,
      ArrowDown: childrenOf(node)[0],
      ArrowLeft: neighbors[neighbors.indexOf(node) - 1],
      ArrowRight: neighbors[neighbors.indexOf(node) + 1],
    }[event.key];
    if (event.key === "Enter" || event.key === " ") {
      choose(node);
    } else if (event.key === "Escape" || event.key === "Home") {
      choose(root);
      focusOn(shown[0]);
    } else if (target && shown.indexOf(target) >= 0) {
      focusOn(target);
    } else if (event.key.indexOf("Arrow") !== 0) {
      return;
    }
    event.preventDefault();
  };
  function rebuild() {
    build();
    draw();
    tell();
  }
  userBox.onchange = rebuild;
  if (valueBox) {
    valueBox.onchange = draw;
  }
  search.oninput = draw;
  document.getElementById("flame-home").onclick = function () {
    choose(root);
  };
  tools.unpackById("flame-gz").then(function (text) {
    view = JSON.parse(text);
    rebuild();
    graph.dataset.ready = "1";
  });
})();
