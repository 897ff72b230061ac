(function () {
  "use strict";

  var root = document.documentElement;

  function one(selector, within) {
    return (within || document).querySelector(selector);
  }
  function all(selector, within) {
    return Array.prototype.slice.call((within || document).querySelectorAll(selector));
  }

  all(".js").forEach(function (element) {
    element.hidden = false;
  });

  /* The theme follows the system until the button is used. */
  var themeButton = one("#theme");
  function labelTheme() {
    themeButton.textContent = root.dataset.theme === "dark" ? "Light" : "Dark";
    themeButton.setAttribute("aria-label", "Switch to " + themeButton.textContent.toLowerCase() + " theme");
  }
  labelTheme();
  themeButton.onclick = function () {
    root.dataset.theme = root.dataset.theme === "dark" ? "light" : "dark";
    try {
      localStorage.setItem("traceopt-theme", root.dataset.theme);
    } catch (error) {
      /* the choice then only lasts as long as the page */
    }
    labelTheme();
  };

  /* On a phone, the sections after the fixes are closed at first. */
  if (matchMedia("(max-width: 720px)").matches) {
    all("section[aria-labelledby=fixes] ~ section > h2:first-child").forEach(function (heading) {
      var section = heading.parentNode, details = document.createElement("details");
      details.className = "closed";
      details.append(document.createElement("summary"), ...section.childNodes);
      details.firstChild.append(heading);
      section.append(details);
    });
  }

  /* A narrow screen shows the links that fit into one line, and the others on request. */
  var links = one("#links"), moreLinks = one("#more-links");
  function openLinks(open) {
    links.classList.toggle("open", open);
    moreLinks.setAttribute("aria-expanded", open);
    moreLinks.textContent = open ? "Less" : "More";
  }
  openLinks(false);
  moreLinks.onclick = function () {
    openLinks(!links.classList.contains("open"));
  };
  links.onclick = function () {
    openLinks(false);
  };

  /* Copy buttons: data-copy names the <pre> whose lines are copied. */
  function say(button, message) {
    var before = button.textContent;
    button.textContent = message;
    setTimeout(function () {
      button.textContent = before;
    }, 1500);
  }
  function copyWithSelection(text, button) {
    var area = document.createElement("textarea");
    area.value = text;
    area.style.position = "fixed";
    area.style.opacity = "0";
    document.body.appendChild(area);
    area.select();
    say(button, document.execCommand("copy") ? "Copied" : "Press Ctrl+C");
    area.remove();
    button.focus();
  }
  function copy(text, button) {
    function fallBack() {
      copyWithSelection(text, button);
    }
    if (navigator.clipboard && window.isSecureContext) {
      navigator.clipboard.writeText(text).then(function () {
        say(button, "Copied");
      }, fallBack);
    } else {
      fallBack();
    }
  }
  all("[data-copy]").forEach(function (button) {
    button.onclick = function () {
      var lines = all("span", document.getElementById(button.dataset.copy)).map(function (line) {
        return line.textContent;
      });
      copy(lines.join("\n") + "\n", button);
    };
  });

  /* Prompts are packed, for few readers copy one. They are unpacked before a click, which some browsers want to see. */
  var prompts = {};
  if (document.getElementById("prompts-gz")) {
    unpackById("prompts-gz").then(function (text) {
      prompts = JSON.parse(text);
    });
  }
  all("[data-prompt]").forEach(function (button) {
    button.onclick = function () {
      copy(prompts[button.dataset.prompt] + "\n", button);
    };
  });

  /* What the reader chose stays in the address, after the anchor: #kernels?kernels-table.sort=2d&kernels-filter=gemm */
  var chosen = new URLSearchParams(location.hash.split("?")[1] || "");
  function anchor() {
    return location.hash.slice(1).split("?")[0];
  }
  function remember(key, value) {
    if (value) {
      chosen.set(key, value);
    } else {
      chosen.delete(key);
    }
    var rest = chosen.toString();
    history.replaceState(null, "", "#" + anchor() + (rest ? "?" + rest : ""));
  }

  /* Sortable tables: the first click puts the largest number or the first name on top. Unknown values stay last. */
  function cellValue(row, column) {
    var content = row.cells[column].textContent.trim();
    var number = /^<?-?[\d,.]+%?( compute| memory)?$/.test(content) ? parseFloat(content.replace(/[,<]/g, "")) : NaN;
    return isNaN(number) ? content.toLowerCase() : number;
  }
  function compare(a, b) {
    if (typeof a !== typeof b) {
      return typeof a === "number" ? -1 : 1;
    }
    return a < b ? -1 : a > b ? 1 : 0;
  }
  function sortBy(table, column, descending) {
    var heading = all("thead th", table)[column];
    var body = table.tBodies[0];
    var rows = Array.prototype.slice.call(body.rows).map(function (row) {
      return { row: row, value: row.className === "no-match" ? "\uffff" : cellValue(row, column) };
    });
    var numeric = rows.some(function (entry) {
      return typeof entry.value === "number";
    });
    var now = heading.getAttribute("aria-sort");
    if (descending === undefined) {
      descending = now ? now === "ascending" : numeric;
    }
    rows.sort(function (a, b) {
      var fixed = typeof a.value !== typeof b.value || a.value === "–" || b.value === "–";
      return compare(a.value, b.value) * (descending && !fixed ? -1 : 1);
    });
    rows.forEach(function (entry) {
      body.appendChild(entry.row);
    });
    all("th", table).forEach(function (other) {
      other.removeAttribute("aria-sort");
    });
    heading.setAttribute("aria-sort", descending ? "descending" : "ascending");
    return column + (descending ? "d" : "a");
  }
  all("table.sort").forEach(function (table) {
    var key = table.id + ".sort";
    all("thead th", table).forEach(function (heading, column) {
      var button = document.createElement("button");
      button.type = "button";
      button.textContent = heading.textContent;
      heading.textContent = "";
      heading.appendChild(button);
      button.onclick = function () {
        remember(key, sortBy(table, column));
      };
    });
    var wanted = /^(\d+)([ad])$/.exec(chosen.get(key) || "");
    if (wanted && Number(wanted[1]) < all("thead th", table).length) {
      sortBy(table, Number(wanted[1]), wanted[2] === "d");
    }
  });

  /* Filters: data-filter names the table, data-count the element that says how many rows are left. */
  all("[data-filter]").forEach(function (input) {
    var body = document.getElementById(input.dataset.filter).tBodies[0];
    var rows = Array.prototype.slice.call(body.rows);
    var status = document.getElementById(input.dataset.count);
    var fold = input.closest("section").querySelector(".fold");
    var none = body.insertRow();
    none.className = "no-match";
    none.hidden = true;
    none.insertCell().colSpan = rows[0].cells.length;
    function filter() {
      var wanted = input.value.toLowerCase();
      var left = 0;
      rows.forEach(function (row) {
        row.hidden = row.textContent.toLowerCase().indexOf(wanted) < 0;
        left += row.hidden ? 0 : 1;
      });
      if (fold) {
        fold.classList.toggle("filtered", wanted !== "");
      }
      none.hidden = left > 0;
      none.cells[0].textContent = left ? "" : "No row contains “" + input.value + "”.";
      status.textContent = wanted ? left + " of " + rows.length + " shown" : "";
    }
    input.oninput = function () {
      filter();
      remember(input.id, input.value);
    };
    if (chosen.get(input.id)) {
      input.value = chosen.get(input.id);
      filter();
      var closed = input.closest("details");
      if (closed) {
        closed.open = true;
      }
    }
  });

  /* Fixes by family, effort and risk. */
  var choices = all("[data-fix-filter]");
  function filterFixes() {
    var cards = all(".fixes > li");
    var left = 0;
    cards.forEach(function (card) {
      card.hidden = choices.some(function (choice) {
        return choice.value && card.dataset[choice.dataset.fixFilter] !== choice.value;
      });
      left += card.hidden ? 0 : 1;
    });
    all("ol.fixes, ul.fixes").forEach(function (list) {
      var heading = list.previousElementSibling;
      if (heading.tagName === "H3") {
        heading.hidden = !all(":scope > li:not([hidden])", list).length;
      }
    });
    var status = document.getElementById("fixes-count");
    status.textContent = left === cards.length ? "" : left ? left + " of " + cards.length + " shown" : "No fix matches all of these.";
  }
  choices.forEach(function (choice) {
    choice.onchange = function () {
      filterFixes();
      remember("fixes." + choice.dataset.fixFilter, choice.value);
    };
    choice.value = chosen.get("fixes." + choice.dataset.fixFilter) || "";
    choice.selectedIndex = Math.max(0, choice.selectedIndex);
  });
  if (choices.length) {
    filterFixes();
  }

  /* Tables are copied as they are shown: sorted and filtered, with full names. */
  function cellText(cell) {
    var full = one(".full", cell) || cell;
    var titled = one("[title]", cell);
    return (titled ? titled.title : full.textContent).replace(/\s+/g, " ").trim();
  }
  function csvCell(text) {
    if (/^[=+@\t-]/.test(text) && isNaN(Number(text))) {
      text = "'" + text; /* a spreadsheet would run it */
    }
    return /[",\n]/.test(text) ? '"' + text.replace(/"/g, '""') + '"' : text;
  }
  function markdownCell(text) {
    return text.replace(/[\\`*_{}\[\]<>|~#]/g, "\\$&");
  }
  /* A number as data: no commas, no unit, not only a bound. Any other text is itself, and a dash is nothing. */
  function plainValue(cell, text) {
    var number = text.replace(/,/g, "").replace("−", "-").replace(/%$/, "");
    return text === "–" ? "" : cell.dataset.exact || (isNaN(Number(number)) ? text : number);
  }
  /* What stands beside the values of a column, such as "compute" in "34% compute", is a column of its own. */
  function csvColumn(cells) {
    var notes = [];
    var texts = cells.map(function (cell, row) {
      var bare = cell.cloneNode(true);
      notes[row] = all("small, .flag", bare).map(function (note) { note.remove(); return cellText(note); }).join(", ");
      return cellText(bare);
    });
    var values = texts.map(function (text, row) { return row ? plainValue(cells[row], text) : text; });
    if (texts.some(function (text) { return /\d%$/.test(text); })) {
      values[0] += ", %";
    }
    if (!notes.some(Boolean)) {
      return [values];
    }
    notes[0] = texts[0] + ", note";
    return [values, notes];
  }
  function csvText(rows) {
    var columns = Array.from(rows[0].cells).flatMap(function (_, index) {
      return csvColumn(rows.map(function (row) { return row.cells[index]; }));
    });
    return rows.map(function (_, row) {
      return columns.map(function (column) { return csvCell(column[row]); }).join(",");
    });
  }
  function markdownText(rows) {
    var lines = rows.map(function (row) {
      return "| " + Array.from(row.cells, cellText).map(markdownCell).join(" | ") + " |";
    });
    lines.splice(1, 0, "|" + " --- |".repeat(rows[0].cells.length));
    return lines;
  }
  function tableText(table, kind) {
    var rows = all("tr", table).filter(function (row) {
      return !row.hidden && row.className !== "no-match";
    });
    return (kind === "csv" ? csvText(rows) : markdownText(rows)).join("\n") + "\n";
  }
  all("[data-table]").forEach(function (button) {
    button.onclick = function () {
      copy(tableText(document.getElementById(button.dataset.table), button.dataset.as), button);
    };
  });

  /* A shadow at the edge behind which columns continue. */
  all(".scroll").forEach(function (box) {
    var frame = box.closest(".table-box");
    if (!frame) {
      frame = document.createElement("div");
      frame.className = "table-box";
      box.before(frame);
      frame.append(box);
    }
    function edge() {
      frame.classList.toggle("more-right", box.scrollWidth - box.clientWidth - box.scrollLeft > 2);
    }
    box.addEventListener("scroll", edge, { passive: true });
    addEventListener("resize", edge);
    var closed = box.closest("details");
    if (closed) {
      closed.addEventListener("toggle", edge);
    }
    edge();
  });

  /* Folding a long table moves its end up, so scroll along. */
  all(".more").forEach(function (details) {
    details.addEventListener("toggle", function () {
      if (!details.open) {
        details.scrollIntoView({ block: "nearest" });
      }
    });
  });

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

  /* Print has the plan open, and neither the other cards nor the sections that are closed at first. */
  var shut = [];
  addEventListener("beforeprint", function () {
    shut = all("details.fix.planned:not([open])");
    shut.forEach(function (details) {
      details.open = true;
    });
  });
  addEventListener("afterprint", function () {
    shut.forEach(function (details) {
      details.open = false;
    });
  });

  var openAll = one("#openall");
  if (openAll) {
    openAll.onclick = function () {
      var open = openAll.textContent === "Open all";
      all("details.fix").forEach(function (details) {
        details.open = open;
      });
      openAll.textContent = open ? "Close all" : "Open all";
    };
  }

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

  /* The parts of the step: the pointer and the focus show what a part is, and a click or Enter keeps it open. */
  function answerParts(bars) {
    var shown = null;
    var kept = false;
    var leaving = 0;
    function answerOf(part) {
      return document.getElementById("answer-" + part.dataset.answer);
    }
    function hide() {
      clearTimeout(leaving);
      if (shown) {
        answerOf(shown).hidden = true;
        shown.classList.remove("chosen");
      }
      shown = null;
      kept = false;
    }
    function show(part, keep) {
      if (!answerOf(part) || (kept && !keep)) {
        return;
      }
      hide();
      shown = part;
      kept = keep;
      part.classList.add("chosen");
      var answer = answerOf(part);
      answer.hidden = false;
      var around = bars.getBoundingClientRect();
      var place = part.getBoundingClientRect();
      var middle = place.left + place.width / 2 - around.left - answer.offsetWidth / 2;
      answer.style.left = Math.max(0, Math.min(middle, around.width - answer.offsetWidth)) + "px";
      answer.style.top = place.bottom - around.top + 6 + "px";
    }
    function leave() {
      clearTimeout(leaving);
      leaving = setTimeout(function () {
        if (!kept) {
          hide();
        }
      }, 200);
    }
    all("[data-answer]", bars).forEach(function (part) {
      part.onpointerenter = part.onfocus = function () {
        show(part, false);
      };
      part.onpointerleave = leave;
      part.onblur = leave;
      part.onclick = function (event) {
        event.preventDefault();
        show(part, true);
        var link = one("a", answerOf(part) || part);
        if (link && event.detail === 0) {
          link.focus(); /* the key Enter */
        }
      };
    });
    all(".answer", bars).forEach(function (answer) {
      answer.onpointerenter = function () {
        clearTimeout(leaving);
      };
      answer.onpointerleave = leave;
    });
    addEventListener("keydown", function (event) {
      if (event.key === "Escape" && shown) {
        var part = shown;
        var back = answerOf(part).contains(document.activeElement);
        hide();
        if (back) {
          part.focus();
          hide();
        }
      }
    });
    addEventListener("click", function (event) {
      if (shown && (!event.target.closest("[data-answer], .answer") || event.target.closest(".answer a"))) {
        hide();
      }
    });
  }
  all("#parts").forEach(answerParts);

  /* The encoding of traceopt/result/encoding/packing.py. */
  function unpackBytes(text) {
    var packed = Uint8Array.from(atob(text), function (letter) {
      return letter.charCodeAt(0);
    });
    var stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
    return new Response(stream).arrayBuffer().then(function (buffer) {
      return new Uint8Array(buffer);
    });
  }
  function unpackText(text) {
    return unpackBytes(text).then(function (bytes) {
      return new TextDecoder().decode(bytes);
    });
  }
  function unpackById(id) {
    return unpackText(document.getElementById(id).textContent.trim());
  }
  /* What the other scripts share. `rank`: place of the chosen rank, 0 for the one that the rest of the page shows.
     The strip of its steps sends "choose", and the document "choose-rank". */
  var shared = { unpackBytes: unpackBytes, unpackText: unpackText, unpackById: unpackById, rank: 0 };
  shared.strip = function () {
    return document.getElementById(shared.rank ? "steps-" + shared.rank + "-scrub" : "steps-scrub");
  };
  window.traceopt = shared;
  var rankChoices = all("[data-rank-choice]");
  rankChoices.forEach(function (choice) {
    choice.onchange = function () {
      shared.rank = Number(choice.value);
      rankChoices.forEach(function (other) {
        other.value = choice.value;
      });
      all("[data-view]").forEach(function (view) {
        view.hidden = view.dataset.view !== choice.value;
      });
      document.dispatchEvent(new CustomEvent("choose-rank"));
    };
  });
})();
