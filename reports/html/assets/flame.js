/* The flame graph: nodes as boxes below their callers, widths by host time or by the GPU time launched. */
(function () {
  "use strict";
  var tools = window.traceopt; /* of page/shared.js */
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
  var threadBox = document.getElementById("flame-thread");
  var what = document.getElementById("flame-what");
  var legend = document.getElementById("flame-key");
  var ROW = 21; /* pixels */
  var SMALLEST = 0.001; /* of the width */
  var MOST_LISTED = 8;
  var MAY_WAIT = ["library", "operator", "runtime"]; /* kinds of calls that are waits if they mostly wait */
  var PLAIN = ["cpu", "launch", "python", "range"]; /* colors of categories that say no more than the kind */
  var recorded = null; /* the view of flame_view.py: the main thread in the step that the report shows */
  var view = null; /* the view that is drawn */
  var chosenStep = null; /* as in the strip, null: the step that the report shows */
  var root = null; /* of the tree of merged nodes that is drawn */
  var zoomed = null;
  var boxes = [];

  var time = tools.time; /* of units.js */
  function share(part, whole) {
    return whole > 0 ? tools.percent(part / whole) : "–";
  }
  /* ~/train.py(12): load -> load (train.py:12); other names stay as they are. */
  function shortFrame(name) {
    var parts = /([^/\\]+)\((\d+)\): ([^]+)$/.exec(name);
    return parts ? parts[3] + " (" + parts[1] + ":" + parts[2] + ")" : name;
  }

  /* The calls of threads in a step as a view like that of flame_view.py. Spans with the same names from the root down are
     one node, callers come before callees. Several threads are nodes side by side. */
  function viewOf(spans, step, threads) {
    var table = spans.view;
    var made = {
      duration: step.end - step.start, frames: table.names.slice(), labels: table.labels.map(shortFrame),
      gpu: spans.firstStall > spans.streamFirst, parent: [], frame: [], kind: [], look: [], total: [], self: [], gpuTotal: [],
    };
    var places = {};
    function nodeBelow(parent, frame, kind, look) {
      var place = parent + " " + kind + " " + frame;
      if (places[place] === undefined) {
        places[place] = made.parent.push(parent) - 1;
        made.frame.push(frame);
        made.kind.push(kind);
        made.look.push(look);
        made.total.push(0);
        made.self.push(0);
        made.gpuTotal.push(0);
      }
      return places[place];
    }
    function lookOf(span) {
      var look = table.categories[spans.category[span]];
      return PLAIN.indexOf(look[0]) < 0 ? look : null;
    }
    function kindOf(span) {
      var color = table.categories[spans.category[span]][0];
      return table.nameKinds[spans.name[span]] || { range: "annotation", launch: "runtime", wait: "runtime" }[color] || "operator";
    }
    var tops = {}; /* by lane: the node of the thread, -1 for none */
    var nodes = {}; /* by span */
    function nodeOf(span) {
      if (nodes[span] === undefined) {
        var caller = spans.caller[span];
        var above = caller < 0 ? tops[spans.laneOf[span]] : nodeOf(caller);
        var kind = kindOf(span);
        nodes[span] = kind === "mark" ? above : nodeBelow(above, spans.name[span], kind, lookOf(span));
      }
      return nodes[span];
    }
    var firstOf = {}; /* by place in the code: the first span of the first thread there */
    threads.forEach(function (number, which) {
      var lane = spans.lanes[number];
      made.labels[made.frames.push(lane.name + " (" + lane.detail + ")") - 1] = lane.name;
      tops[number] = threads.length > 1 ? nodeBelow(-1, made.frames.length - 1, "thread", null) : -1;
      for (var span = lane.first; span < lane.first + lane.count && spans.start[span] < step.end; span++) {
        var inside = Math.min(spans.end[span], step.end) - Math.max(spans.start[span], step.start);
        if (which === 0 && spans.place[span] >= 0 && firstOf[spans.place[span]] === undefined) {
          firstOf[spans.place[span]] = span;
        }
        if (inside > 0 && kindOf(span) !== "mark") {
          var node = nodeOf(span);
          made.total[node] += inside;
          made.self[node] += inside;
          var above = made.parent[node];
          if (above >= 0 && above === tops[number]) {
            made.total[above] += inside;
          } else if (above >= 0) {
            made.self[above] -= inside;
          }
        }
      }
    });
    for (var work = spans.streamFirst; work < spans.firstStall; work++) {
      var delay = spans.launchDelay[work - spans.streamFirst];
      var at = spans.start[work] - (delay - 1) / 1e6;
      var number = spans.launchLane[work - spans.streamFirst] - 1;
      var caller = -1;
      if (delay && at >= step.start && at < step.end) {
        if (threads.indexOf(number) >= 0) {
          caller = spans.openAt(number, at + 1e-7).pop();
        } else {
          caller = firstOf[spans.place[work]]; /* a backward pass launched it for this line of the forward pass */
        }
      }
      if (caller >= 0) {
        var node = nodeBelow(nodeOf(caller), spans.name[work], "kernel", lookOf(work));
        for (; node >= 0; node = made.parent[node]) {
          made.gpuTotal[node] += spans.duration[work];
        }
      }
    }
    return made;
  }
  /* The look of each node: its own, or that of its caller, which may wait or load data; else that of its kind. A call
     that mostly waits is a wait. */
  function paint() {
    var inherited = [];
    var waits = view.total.map(function () { return 0; });
    view.look.forEach(function (own, node) {
      inherited[node] = own || (view.kind[node] === "kernel" || view.parent[node] < 0 ? null : inherited[view.parent[node]]);
    });
    for (var node = waits.length - 1; node >= 0; node--) {
      if (inherited[node] && inherited[node][0] === recorded.wait[0]) {
        waits[node] = view.total[node];
      } else if (!inherited[node] && MAY_WAIT.indexOf(view.kind[node]) >= 0 && waits[node] > view.total[node] / 2) {
        inherited[node] = recorded.wait;
      }
      if (view.parent[node] >= 0) {
        waits[view.parent[node]] += waits[node];
      }
    }
    view.looks = inherited.map(function (look, node) {
      return look || recorded.kindLooks[view.kind[node]];
    });
  }
  function drawLegend() {
    var colors = {};
    view.looks.forEach(function (look) {
      colors[look[1]] = look[0];
    });
    var first = [recorded.kindLooks.user[1], recorded.kindLooks.library[1]];
    var others = Object.keys(colors).filter(function (word) {
      return first.indexOf(word) < 0;
    });
    legend.textContent = "";
    first.concat(others.sort()).forEach(function (word) {
      if (colors[word]) {
        var item = legend.appendChild(document.createElement("li"));
        var swatch = item.appendChild(document.createElement("span"));
        swatch.className = "swatch flame-look" + (word === first[0] ? " flame-user" : "");
        swatch.dataset.color = colors[word];
        swatch.style.setProperty("--c", "var(--" + colors[word] + ")");
        item.appendChild(document.createTextNode(word));
      }
    });
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
          name: view.frame[node], kind: view.kind[node], color: view.looks[node][0], parent: parent, children: {}, nodes: [], total: 0, gpuTotal: 0,
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
    root.total = Math.max(root.total, view.duration); /* several threads have more time than the step */
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
  function show(shown, caption) {
    view = shown;
    if (caption) {
      what.textContent = caption;
    }
    paint();
    drawLegend();
    rebuild();
    graph.dataset.ready = "1";
  }
  /* Draws what is chosen: a rank, a step in the strip, and a thread. */
  function choosePart() {
    var first = !threadBox || threadBox.selectedIndex === 0;
    var shown = first && tools.rank === 0;
    if (shown && chosenStep === null) {
      show(recorded, recorded.caption);
      return;
    }
    tools.loadSpans().then(function (spans) {
      var table = spans.view;
      var index = chosenStep === null ? table.shown : table.steps.findIndex(function (step) { return step.step === chosenStep; });
      if (shown && index === table.shown) {
        show(recorded, recorded.caption);
      } else if (index < 0) {
        what.textContent = "The report does not hold the spans of that step, so the flame graph stays.";
      } else {
        var threads = threadsOf(spans);
        if (threadBox.value) {
          threads = [first ? threads[0] : Number(threadBox.value)];
        }
        var doing = threads.length > 1 ? "all threads" : first ? "the main thread" : "the " + threadBox.selectedOptions[0].textContent;
        var rank = tools.rank ? " of " + spans.view.rank : "";
        show(viewOf(spans, table.steps[index], threads), "What " + doing + rank + " did in " + table.steps[index].name + ", by call.");
      }
    });
  }
  function threadsOf(spans) {
    return spans.lanes.map(function (lane, number) {
      return number;
    }).filter(function (number) {
      return spans.lanes[number].kind === "thread";
    });
  }
  /* Another rank has other threads. */
  function chooseRank() {
    chosenStep = null;
    tools.loadSpans().then(function (spans) {
      var threads = threadsOf(spans);
      threadBox.textContent = "";
      threads.forEach(function (number) {
        threadBox.add(new Option(spans.lanes[number].name + " (" + spans.lanes[number].detail + ")", number));
      });
      threadBox.add(new Option("All threads", ""));
      threadBox.parentNode.hidden = threads.length < 2;
      choosePart();
    });
  }
  userBox.onchange = rebuild;
  if (valueBox) {
    valueBox.onchange = draw;
  }
  if (threadBox) {
    threadBox.onchange = choosePart;
    document.addEventListener("choose-rank", chooseRank);
    document.addEventListener("choose", function (event) {
      if (event.target === tools.strip()) {
        chosenStep = Number(event.target.dataset.first) + event.detail;
        if (recorded) {
          choosePart();
        }
      }
    });
  }
  search.oninput = draw;
  document.getElementById("flame-home").onclick = function () {
    choose(root);
  };
  tools.unpackById("flame-gz").then(function (text) {
    recorded = JSON.parse(text);
    recorded.labels = recorded.frames.map(shortFrame);
    recorded.caption = what.textContent;
    choosePart();
  });
})();
