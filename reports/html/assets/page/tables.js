/* Tables: sorted, filtered, copied, and wider than the page. */
(function () {
  "use strict";
  var tools = window.traceopt; /* of page/shared.js */
  var one = tools.one, all = tools.all, chosen = tools.chosen, remember = tools.remember, copy = tools.copy;

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
})();
