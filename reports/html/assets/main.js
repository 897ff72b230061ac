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
  all("[data-copy]").forEach(function (button) {
    button.onclick = function () {
      var lines = all("span", document.getElementById(button.dataset.copy)).map(function (line) {
        return line.textContent;
      });
      var text = lines.join("\n") + "\n";
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
    };
  });

  /* Sortable tables: the first click puts the largest number or the first name on top. "not recorded" stays last. */
  function cellValue(row, column) {
    var content = row.cells[column].textContent.trim();
    var number = Number(content.replace(/[,%<]/g, ""));
    return isNaN(number) ? content.toLowerCase() : number;
  }
  function compare(a, b) {
    if (typeof a !== typeof b) {
      return typeof a === "number" ? -1 : 1;
    }
    return a < b ? -1 : a > b ? 1 : 0;
  }
  function sortBy(table, column, heading) {
    var body = table.tBodies[0];
    var rows = Array.prototype.slice.call(body.rows).map(function (row) {
      return { row: row, value: cellValue(row, column) };
    });
    var numeric = rows.some(function (entry) {
      return typeof entry.value === "number";
    });
    var now = heading.getAttribute("aria-sort");
    var descending = now ? now === "ascending" : numeric;
    rows.sort(function (a, b) {
      var mixed = typeof a.value !== typeof b.value;
      return compare(a.value, b.value) * (descending && !mixed ? -1 : 1);
    });
    rows.forEach(function (entry) {
      body.appendChild(entry.row);
    });
    all("th", table).forEach(function (other) {
      other.removeAttribute("aria-sort");
    });
    heading.setAttribute("aria-sort", descending ? "descending" : "ascending");
  }
  all("table.sort").forEach(function (table) {
    all("thead th", table).forEach(function (heading, column) {
      var button = document.createElement("button");
      button.type = "button";
      button.textContent = heading.textContent;
      heading.textContent = "";
      heading.appendChild(button);
      button.onclick = function () {
        sortBy(table, column, heading);
      };
    });
  });

  /* Filters: data-filter names the table, data-count the element that says how many rows are left. */
  all("[data-filter]").forEach(function (input) {
    var rows = Array.prototype.slice.call(document.getElementById(input.dataset.filter).tBodies[0].rows);
    var status = document.getElementById(input.dataset.count);
    var fold = input.closest("section").querySelector(".fold");
    input.oninput = function () {
      var wanted = input.value.toLowerCase();
      var left = 0;
      rows.forEach(function (row) {
        row.hidden = row.textContent.toLowerCase().indexOf(wanted) < 0;
        left += row.hidden ? 0 : 1;
      });
      if (fold) {
        fold.classList.toggle("filtered", wanted !== "");
      }
      status.textContent = wanted ? left + " of " + rows.length + " shown" : "";
    };
  });

  /* Folding a long table moves its end up, so scroll along. */
  all(".more").forEach(function (details) {
    details.addEventListener("toggle", function () {
      if (!details.open) {
        details.scrollIntoView({ block: "nearest" });
      }
    });
  });

  /* A link to report.html#DL001 opens that card; printing opens everything but long names and long tables. */
  function openLinked() {
    var linked = null;
    try {
      linked = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    } catch (error) {
      /* not a valid fragment */
    }
    if (linked && linked.tagName === "DETAILS") {
      linked.open = true;
      linked.scrollIntoView();
    }
  }
  addEventListener("hashchange", openLinked);
  openLinked();

  var shut = [];
  addEventListener("beforeprint", function () {
    shut = all("details:not([open])").filter(function (details) {
      return !details.closest("td, .fold");
    });
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
      box.dispatchEvent(new CustomEvent("choose", { detail: index }));
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
      if (index !== undefined && !event.ctrlKey && !event.metaKey && !event.altKey) {
        event.preventDefault();
        choose(index);
      }
    };
    box.addEventListener("choose-step", function (event) {
      choose(event.detail);
    });
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

  /* The encoding of traceopt/result/packing.py: gzip in base 85, preceded by the number of padding bytes. */
  function unpackBytes(text) {
    var digitOf = {};
    var digit = 0;
    for (var code = 33; code < 127; code++) {
      if ("\"&'<>\\`|~".indexOf(String.fromCharCode(code)) < 0) {
        digitOf[code] = digit++;
      }
    }
    var bytes = new Uint8Array(((text.length - 1) / 5) * 4);
    var view = new DataView(bytes.buffer);
    for (var group = 0; group < bytes.length / 4; group++) {
      var word = 0;
      for (var letter = 0; letter < 5; letter++) {
        word = word * 85 + digitOf[text.charCodeAt(1 + group * 5 + letter)];
      }
      view.setUint32(group * 4, word);
    }
    var packed = bytes.subarray(0, bytes.length - Number(text[0]));
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
  window.traceopt = { unpackBytes: unpackBytes, unpackText: unpackText, unpackById: unpackById };
})();
