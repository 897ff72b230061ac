/* Buttons that copy code and prompts. */
(function () {
  "use strict";
  var tools = window.traceopt; /* of page/shared.js */
  var all = tools.all, unpackById = tools.unpackById;

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

  tools.copy = copy;
})();
