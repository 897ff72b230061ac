/* The theme, and how a narrow screen shows the sections and the links to them. */
(function () {
  "use strict";
  var tools = window.traceopt; /* of page/shared.js */
  var one = tools.one, all = tools.all;
  var root = document.documentElement;

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
})();
