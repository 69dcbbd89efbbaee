"use strict";
// Choosing a pair: by its point, by keys, by buttons; its numbers, texts and clouds follow.
(function (poolscope) {
  const { element, whole, chart, scatterFigure, scatterRows, pictureFigure, textCard, isOf, kindsOf } = poolscope;
  const NAMED =
    "Marked are the tokens that add most to d_Σ: a token's share is its squared deviation from the mean of its text, " +
    "less what the best alignment of both clouds finds of it in the other text. The shares of all tokens of both " +
    "texts sum to 100 %. Underlined are the words that the other text does not have in this order.";
  const NAMELESS = "The names of the tokens are not known here, so none is marked.";
  const KEYS = "Scatter of pairs: arrow keys choose the pair of next lower or higher SOCM";

  function pairNumbers({ socm, d_mu, d_sigma }, row) {
    const named = [
      ["SOCM", socm[row]],
      ["cosine of the means", 1 - 2 * d_mu[row]], // d_μ is the squared distance of unit means, over 4
      ["d_μ", d_mu[row]],
      ["d_Σ", d_sigma[row]],
    ];
    return named.map(([name, value]) =>
      element("div", null, element("dt", null, name), element("dd", null, value.toFixed(4))),
    );
  }

  // A long text stands in a box that scrolls: if its first mark is out of sight, it is scrolled to.
  function showMarks(box) {
    const first = box.querySelector("mark.strong") || box.querySelector("mark[title]");
    if (first && first.offsetTop + first.offsetHeight > box.clientHeight) box.scrollTop = first.offsetTop - 60;
  }

  function explorer(host, data, page) {
    const { d_mu, d_sigma, reasons } = data.pairs;
    const state = { row: 0, kind: -1 }; // −1: pairs of all kinds
    const rows = () => reasons.map((_, row) => row).filter((row) => state.kind < 0 || isOf(data, row, state.kind));

    const kinds = element(
      "select",
      { "aria-label": "Which pairs" },
      element("option", { value: "-1" }, "all pairs of this page"),
      ...data.kinds.map((name, k) =>
        element("option", { value: k, disabled: !reasons.some((_, row) => isOf(data, row, k)) }, name),
      ),
    );
    const previous = element("button", { type: "button", class: "step", onclick: () => step(-1) }, "← Higher");
    const next = element("button", { type: "button", class: "step", onclick: () => step(1) }, "Lower →");
    const back = element("button", { type: "button", class: "quiet back", hidden: true }, "Back to the table");
    const status = element("p", { class: "pair-status", role: "status" });
    const scatterHost = element("div", { class: "pair-scatter", tabindex: "0", role: "group", "aria-label": KEYS });
    const pictureHost = element("div", { class: "pair-picture" });
    const numbers = element("dl", { class: "pair-numbers" });
    const cards = element("div", { class: "pair-cards" });
    const figures = element("div", { class: "pair-figures" }, scatterHost, pictureHost);
    const hint = element("p", { class: "hint" }, data.words.length ? NAMED : NAMELESS);
    host.append(element("div", { class: "pair-tools" }, kinds, previous, next, back, status), figures, numbers, cards, hint);

    const scatter = chart(scatterHost, scatterFigure(data), { page, rows: () => scatterRows(data), drawn: listen });
    const picture = chart(pictureHost, pictureFigure(data, 0), { page });

    function listen(plot) {
      if (plot.dataset.listening) return;
      plot.dataset.listening = "true";
      plot.on("plotly_click", (event) => {
        const point = event.points.find((one) => one.customdata);
        if (point) choose(point.customdata[0]);
      });
    }

    function step(by) {
      const among = rows();
      choose(among[Math.min(Math.max(among.indexOf(state.row) + by, 0), among.length - 1)]);
    }

    const keys = {
      ArrowLeft: () => step(-1),
      ArrowUp: () => step(-1),
      ArrowRight: () => step(1),
      ArrowDown: () => step(1),
      Home: () => choose(rows()[0]),
      End: () => choose(rows().at(-1)),
    };
    scatterHost.addEventListener("keydown", (event) => {
      if (event.target !== scatterHost || !keys[event.key]) return;
      event.preventDefault();
      keys[event.key]();
    });
    kinds.addEventListener("change", () => {
      state.kind = Number(kinds.value);
      choose(rows().includes(state.row) ? state.row : rows()[0]);
    });

    function choose(row) {
      state.row = row;
      if (!rows().includes(row)) {
        // a point of another kind was clicked: all kinds again
        state.kind = -1;
        kinds.value = "-1";
      }
      const among = rows();
      const place = among.indexOf(row) + 1;
      status.textContent = `Pair ${whole(place)} of ${whole(among.length)}, by SOCM · ${kindsOf(data, row).join("; ")}`;
      previous.disabled = place === 1;
      next.disabled = place === among.length;
      numbers.replaceChildren(...pairNumbers(data.pairs, row));
      cards.replaceChildren(textCard(data, row, 0), textCard(data, row, 1));
      cards.querySelectorAll(".pair-text").forEach(showMarks);
      const ring = scatter.figure.data.length - 1;
      Object.assign(scatter.figure.data[ring], { x: [d_mu[row]], y: [d_sigma[row]] });
      picture.figure = pictureFigure(data, row);
      if (!scatter.width) return; // the page draws all figures when it is complete
      Plotly.restyle(scatter.plot, { x: [[d_mu[row]]], y: [[d_sigma[row]]] }, [ring]);
      picture.draw();
    }
    choose(0);

    // From a row of a table: its pair, and the way back to the row, or to its table.
    poolscope.openPair = (row, from) => {
      const table = from.closest(".table");
      choose(row);
      back.hidden = false;
      back.onclick = () => {
        // A row that was searched or folded away meanwhile is not in the page.
        const beside = () => table.querySelector("[type=search]") ?? table.querySelector(".table-scroll");
        const to = from.isConnected ? from : beside();
        to.focus({ preventScroll: true });
        to.scrollIntoView({ block: "center" });
        back.hidden = true;
      };
      host.scrollIntoView({ block: "start" });
      scatterHost.focus({ preventScroll: true });
    };
  }

  // Pairs by the ids of their texts, in either order; without an explorer there are none.
  function indexPairs(data) {
    const key = (a, b) => JSON.stringify([a, b].sort());
    const found = new Map();
    if (data) data.pairs.i.forEach((i, row) => found.set(key(data.texts[i].id, data.texts[data.pairs.j[row]].id), row));
    poolscope.pairRow = (a, b) => found.get(key(a, b));
  }

  Object.assign(poolscope, { explorer, indexPairs });
})(window.poolscope);
