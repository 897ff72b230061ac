/* What all scripts of a page share, as window.traceopt. */
(function () {
  "use strict";

  function one(selector, within) {
    return (within || document).querySelector(selector);
  }
  function all(selector, within) {
    return Array.prototype.slice.call((within || document).querySelectorAll(selector));
  }

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
  /* `chosen`: what is in the address. `rank`: place of the chosen rank, 0 for the one that the rest of the page shows. */
  var shared = {
    one: one,
    all: all,
    chosen: chosen,
    anchor: anchor,
    remember: remember,
    unpackBytes: unpackBytes,
    unpackText: unpackText,
    unpackById: unpackById,
    rank: 0,
  };
  /* The steps of that rank as a strip, which sends "choose". */
  shared.strip = function () {
    return document.getElementById(shared.rank ? "steps-" + shared.rank + "-scrub" : "steps-scrub");
  };
  window.traceopt = shared;
})();
