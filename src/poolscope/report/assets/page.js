"use strict";
// The page: its data put in place, its colours, and its print.
window.poolscope.make = function () {
  const poolscope = window.poolscope;
  const root = document.documentElement;
  const data = JSON.parse(document.getElementById("pageData").textContent);
  poolscope.colorway = data.colorway;
  poolscope.mark = data.mark;
  poolscope.indexPairs(data.explorer);
  poolscope.indexMap(data.map);

  for (const [key, section] of Object.entries(data.sections)) {
    const host = document.getElementById(key);
    for (const figure of section.figures)
      poolscope.chart(host.querySelector(".figures"), figure, { page: `${data.title} ${key}` });
    for (const table of section.tables) poolscope.table(host.querySelector(".tables"), table, data.title);
  }
  if (data.map) poolscope.map(document.querySelector(".map-body"), data.map, data.title);
  if (data.explorer) poolscope.explorer(document.querySelector(".explorer-body"), data.explorer, data.title);

  // -- commands: copied, or selected where the browser refuses to
  for (const button of document.querySelectorAll(".copy")) {
    const command = button.parentElement.querySelector("code");
    button.hidden = false;
    button.addEventListener("click", async () => {
      try {
        await navigator.clipboard.writeText(command.textContent);
        button.textContent = "Copied";
      } catch (error) {
        getSelection().selectAllChildren(command);
        button.textContent = "Selected: copy it";
      }
      setTimeout(() => (button.textContent = "Copy"), 4000);
    });
  }

  // -- explanations: a link to one, or to a heading in one, opens it; the browser goes there
  function unfold(target) {
    const explanation = target && target.closest(".explanation");
    if (explanation) explanation.open = true;
    const rest = target && target.matches(".answer") && target.querySelector(":scope > .rest");
    if (rest) rest.open = true; // who goes to an answer wants to see it
    return Boolean(explanation);
  }
  poolscope.unfold = unfold;
  addEventListener("hashchange", () => unfold(document.querySelector(":target")));
  addEventListener("click", (event) => {
    const link = event.target.closest('a[href^="#"]'); // no change of the address if it is the same as before
    if (link) unfold(document.getElementById(link.getAttribute("href").slice(1)));
  });

  // -- colours: the system's, until the reader chooses
  const button = document.getElementById("pageTheme");
  const system = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : system.matches);
  function label() {
    button.textContent = isDark() ? "Light" : "Dark";
    button.setAttribute("aria-label", isDark() ? "Use light colours" : "Use dark colours");
  }
  function recolour() {
    label();
    poolscope.redraw();
  }
  label();
  button.hidden = false;
  button.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    try {
      localStorage.setItem("poolscope-theme", root.dataset.theme);
    } catch (error) {
      // no storage: the choice lasts as long as the page
    }
    recolour();
  });
  system.addEventListener("change", recolour);

  // -- print: light, the evidence open, figures as wide as A4 or Letter paper allows; what is folded stays so, and of
  // tables the style sheet leaves the first rows: paper is for a report, the file for everything
  const PAPER = 900; // the style sheet draws it at half its size
  const closed = new Set();
  addEventListener("beforeprint", () => {
    document.querySelectorAll(".answer:not(:has(> .rest)) details.evidence:not([open])").forEach((part) => {
      part.open = true;
      closed.add(part);
    });
    root.classList.add("printing");
    poolscope.redraw(PAPER);
  });
  addEventListener("afterprint", () => {
    closed.forEach((part) => {
      part.open = false;
    });
    closed.clear();
    root.classList.remove("printing");
    poolscope.redraw();
  });

  // -- what is folded is drawn when it opens, in the colours and the width of that moment
  for (const rest of document.querySelectorAll(".rest"))
    rest.addEventListener("toggle", () => {
      if (rest.open) poolscope.charts.filter((one) => rest.contains(one.plot)).forEach((one) => one.draw());
    });

  // -- where the reader is: the question in view is marked in the list above, which follows
  const links = new Map(
    [...document.querySelectorAll(".questions a")].map((link) => [link.getAttribute("href").slice(1), link]),
  );
  const seen = new IntersectionObserver(
    (entries) => {
      for (const { target, isIntersecting } of entries) {
        const link = links.get(target.id);
        if (!link || !isIntersecting) continue;
        for (const other of links.values()) other.removeAttribute("aria-current");
        link.setAttribute("aria-current", "true");
        const strip = link.closest("ol");
        strip.scrollLeft = link.offsetLeft - strip.offsetLeft - 40;
      }
    },
    { rootMargin: "-15% 0px -75% 0px" },
  );
  for (const key of links.keys()) seen.observe(document.getElementById(key));

  // -- figures one after the other, so that the first can be read while the last is drawn
  async function drawAll() {
    await poolscope.unpackDrawing();
    for (const chart of poolscope.charts) {
      chart.draw();
      await new Promise((done) => setTimeout(done, 0));
    }
    poolscope.followWidth();
    const target = document.querySelector(":target");
    if (unfold(target)) target.scrollIntoView(); // the figures have pushed it down
    root.dataset.ready = "true";
  }
  drawAll();
};

// What is written is painted first, and the rest is made after that; a page that nobody sees is made all the same.
(function (poolscope) {
  let begun = false;
  function begin() {
    if (begun) return;
    begun = true;
    poolscope.make();
  }
  requestAnimationFrame(() => setTimeout(begin, 0));
  setTimeout(begin, 500);
})(window.poolscope);
