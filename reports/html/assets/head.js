(function () {
  "use strict";
  var theme = null;
  try {
    theme = localStorage.getItem("traceopt-theme");
  } catch (error) {
    /* some browsers deny storage to local files */
  }
  if (theme !== "dark" && theme !== "light") {
    theme = window.matchMedia && matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  }
  document.documentElement.dataset.theme = theme;
  /* A phone has its short navigation from the start. */
  document.documentElement.classList.add("scripted");
})();
