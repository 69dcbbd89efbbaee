"use strict";
// What is shown of pairs: the scatter of d_μ and d_Σ, the picture of two clouds, the two texts with their marks.
(function (poolscope) {
  const { element, whole, readable, kept, cutNote } = poolscope;
  const LOOKS = [
    [1, "diamond", 9],
    [0, "circle", 8],
    [null, "circle-open", 7],
  ];
  const LABELLED = 3; // tokens of each cloud whose name stands in the picture, if there is a free place for it
  const SMALLEST = 300; // pixels that the picture has at least
  const AROUND = { "top center": [0, 1], "bottom center": [0, -1], "middle right": [1, 0], "middle left": [-1, 0] };

  const inert = (label) => readable(label).replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
  const unpacked = (text, Kind) => new Kind(Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0)).buffer);
  const percent = (thousandths) => `${(thousandths / 10).toFixed(1)} %`;

  // A pair can have been chosen for several kinds: bit k of its reasons is that for kind k.
  const isOf = (data, row, k) => Boolean(data.pairs.reasons[row] & (1 << k));
  const kindsOf = (data, row) => data.kinds.filter((_, k) => isOf(data, row, k));

  // Curves of equal SOCM: (1 − d_μ)^a · d_Σ^b = s.
  function curves(data, right, top) {
    const [a, b] = data.exponents;
    const step = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5].find((size) => top / size <= 5) || 10;
    const traces = [];
    for (let level = step; level < top; level += step) {
      const x = Array.from({ length: 60 }, (_, k) => (k / 59) * right);
      traces.push({
        type: "scatter",
        mode: "lines",
        x,
        y: x.map((d) => Math.pow(level / Math.pow(1 - d, a), 1 / b)),
        line: { color: "#bbbbbb", width: 1, dash: "dot" },
        hoverinfo: "skip",
        showlegend: false,
        name: `SOCM ${Number(level.toPrecision(3))}`,
      });
    }
    return traces;
  }

  function scatterFigure(data) {
    const { d_mu, d_sigma, socm } = data.pairs;
    const right = Math.min(Math.max(...d_mu) * 1.08 + 0.01, 0.999);
    const top = Math.max(...d_sigma) * 1.08 + 1e-6;
    const lines = curves(data, right, top);
    const points = data.kinds
      .map((name, k) => {
        const first = (row) => data.kinds.findIndex((_, other) => isOf(data, row, other)) === k; // drawn once
        const rows = socm.map((_, row) => row).filter(first);
        const [colour, symbol, size] = LOOKS[k];
        const color = colour === null ? "#666666" : poolscope.colorway[colour];
        return {
          type: "scatter",
          mode: "markers",
          name,
          x: rows.map((row) => d_mu[row]),
          y: rows.map((row) => d_sigma[row]),
          customdata: rows.map((row) => [row, socm[row]]),
          marker: { color, symbol, size, opacity: 0.8 },
          hovertemplate: "SOCM %{customdata[1]:.3f}<br>d<sub>μ</sub> %{x:.3f}, d<sub>Σ</sub> %{y:.3f}<extra></extra>",
        };
      })
      .reverse(); // the worst pairs lie on top
    const chosen = {
      type: "scatter",
      mode: "markers",
      name: "chosen",
      showlegend: false,
      hoverinfo: "skip",
      x: [],
      y: [],
      marker: { size: 20, symbol: "circle-open", color: "#000000", line: { width: 3 } },
    };
    const annotations = lines.map((line) => ({
      x: 0,
      y: line.y[0],
      xanchor: "left",
      yanchor: "bottom",
      showarrow: false,
      text: line.name,
      font: { size: 11, color: "#707070" },
    }));
    return {
      name: "Means and covariances of the pairs",
      title: "dotted: equal SOCM",
      data: [...lines, ...points, chosen],
      layout: {
        title: { text: "Means and covariances of the pairs" },
        width: 700,
        height: 620,
        hovermode: "closest",
        clickmode: "event",
        annotations,
        legend: { orientation: "h", traceorder: "reversed" },
        margin: { l: 80, r: 30, t: 90, b: 60 },
        xaxis: {
          title: { text: "d<sub>μ</sub>: how far the means are apart" },
          range: [-0.01 * right, right],
          zeroline: false,
          showline: true,
        },
        yaxis: {
          title: { text: "d<sub>Σ</sub>: how much the covariances differ", standoff: 12 },
          range: [0, top],
          zeroline: false,
          showline: true,
        },
      },
    };
  }

  function scatterRows(data) {
    const { i, j, d_mu, d_sigma, socm } = data.pairs;
    return [
      ["id_a", "id_b", "d_mu", "d_sigma", "socm", "kind"],
      i.map((left, row) => [
        data.texts[left].id,
        data.texts[j[row]].id,
        d_mu[row],
        d_sigma[row],
        socm[row],
        kindsOf(data, row).join("; "),
      ]),
    ];
  }

  // The picture of a pair: the traces of the figure that came with the page, filled with other clouds. They are, for
  // each text, two ellipses and the tokens, and then for each text the arrow to its mean.
  function pictureFigure(data, row) {
    const detail = data.details[row];
    const figure = structuredClone(data.figure);
    const texts = [data.texts[data.pairs.i[row]], data.texts[data.pairs.j[row]]];
    detail.sides.forEach((side, k) => {
      const at = (x, y) => [x * detail.unit, y * detail.unit];
      const [mx, my] = at(...side.mean);
      const [[ax, ay], [bx, by]] = side.axes.map((axis) => at(...axis));
      [2, 1].forEach((deviations, e) => {
        const angles = Array.from({ length: 97 }, (_, step) => (step / 96) * 2 * Math.PI);
        const trace = figure.data[3 * k + e];
        trace.x = angles.map((t) => mx + deviations * (ax * Math.cos(t) + bx * Math.sin(t)));
        trace.y = angles.map((t) => my + deviations * (ay * Math.cos(t) + by * Math.sin(t)));
      });
      const points = unpacked(side.points, Int16Array);
      const tokens = figure.data[3 * k + 2];
      tokens.name = `text ${"AB"[k]}`;
      tokens.x = Array.from({ length: points.length / 2 }, (_, p) => points[2 * p] * detail.unit);
      tokens.y = Array.from({ length: points.length / 2 }, (_, p) => points[2 * p + 1] * detail.unit);
      if (texts[k].words !== null) {
        tokens.text = Array.from(unpacked(texts[k].words, data.places === "int16" ? Int16Array : Int32Array), (word) => inert(data.words[word]));
        tokens.hovertemplate = "%{text}<extra></extra>";
      }
      Object.assign(figure.data[6 + k], { x: [0, mx], y: [0, my] });
    });
    const labels = placedLabels(data, detail, figure.data);
    [0, 1].forEach((k) => figure.data.push(markedTrace(labels, k, figure.data[3 * k + 2].marker)));
    const { d_mu, d_sigma, socm } = data.pairs;
    figure.layout.title.text = `<b>SOCM ${socm[row].toFixed(3)}</b>   d<sub>μ</sub> ${d_mu[row].toFixed(3)}   d<sub>Σ</sub> ${d_sigma[row].toFixed(3)}`;
    figure.layout.legend.orientation = "h";
    figure.layout.yaxis.title.text = "second singular direction";
    figure.name = "The two clouds";
    const thinned = texts.some((text, k) => text.tokens > figure.data[3 * k + 2].x.length);
    figure.title = `${Math.round(detail.kept * 100)} % of the squared norms lie in this plane${thinned ? "; of long texts every few tokens are drawn" : ""}`;
    return figure;
  }

  // Labels of the tokens that matter most, the first ones first; one that finds no free place around its point is left out.
  function placedLabels(data, detail, traces) {
    const extent = (axis) => {
      const values = traces.flatMap((trace) => trace[axis]);
      return Math.max(...values) - Math.min(...values);
    };
    const pixel = Math.max(extent("x"), extent("y")) / SMALLEST;
    const wanted = [0, 1]
      .flatMap((k) => detail.marked[k].slice(0, LABELLED).map((one) => ({ k, one })))
      .filter(({ one }) => one[0] >= 0)
      .sort((a, b) => b.one[3] - a.one[3]);
    const boxes = [];
    return wanted.map(({ k, one }) => {
      const [x, y] = [one[4] * detail.unit, one[5] * detail.unit];
      const name = Array.from(data.words[one[0]]);
      const word = name.length > 16 ? `${name.slice(0, 15).join("")}…` : name.join("");
      const half = [(7 * Array.from(word).length + 6) / 2, 9];
      const place = Object.entries(AROUND).find(([, [dx, dy]]) => {
        const box = [x / pixel + dx * (half[0] + 8), y / pixel + dy * (half[1] + 8), ...half];
        const free = boxes.every((o) => Math.abs(o[0] - box[0]) > o[2] + box[2] || Math.abs(o[1] - box[1]) > o[3] + box[3]);
        if (free) boxes.push(box);
        return free;
      });
      return { k, x, y, word: place ? inert(word) : "", place: place ? place[0] : "top center" };
    });
  }

  function markedTrace(labels, k, marker) {
    const found = labels.filter((label) => label.k === k);
    return {
      type: "scatter",
      mode: "markers+text",
      x: found.map(({ x }) => x),
      y: found.map(({ y }) => y),
      text: found.map(({ word }) => word),
      textposition: found.map(({ place }) => place),
      textfont: { size: 12 },
      marker: { ...marker, size: 12, opacity: 1 },
      name: `text ${"AB"[k]}: marked`,
      showlegend: false,
      hoverinfo: "skip",
    };
  }

  // Which words of two texts do not stand in the longest sequence of words that both have, as places of characters.
  const COMPARED = 700; // words of each text; the square of it is the work
  function differing(own, other) {
    const words = (text) => [...text.matchAll(/[\p{L}\p{N}]+/gu)].slice(0, COMPARED);
    const left = words(own);
    const right = words(other).map((word) => word[0].toLowerCase());
    const same = left.map((word) => word[0].toLowerCase());
    const wide = right.length + 1;
    const longest = new Uint16Array((left.length + 1) * wide);
    for (let a = left.length - 1; a >= 0; a--)
      for (let b = right.length - 1; b >= 0; b--)
        longest[a * wide + b] =
          same[a] === right[b]
            ? longest[(a + 1) * wide + b + 1] + 1
            : Math.max(longest[(a + 1) * wide + b], longest[a * wide + b + 1]);
    const alone = [];
    let b = 0;
    left.forEach((word, a) => {
      while (b < right.length && same[a] !== right[b] && longest[a * wide + b + 1] >= longest[(a + 1) * wide + b]) b++;
      if (b < right.length && same[a] === right[b]) b++;
      else alone.push([word.index, word.index + word[0].length]);
    });
    return alone;
  }

  // The text with its marked tokens, and with the words that the other text does not have. Places count characters, as
  // the text does when it is cut into them; those of words count UTF-16 units, which is the same but for rare letters.
  function markedText(text, marked, other) {
    if (text.text === null) return element("p", { class: "unknown" }, "The clouds were made without their texts.");
    const { text: part, length, start: skipped } = kept(text.text);
    const letters = Array.from(part);
    const body = element("bdi", { class: "corpus", dir: "auto" });
    const strongest = Math.max(1, ...marked.map((one) => one[3]));
    const strength = (share) => (share > 0.66 * strongest ? "strong" : share > 0.33 * strongest ? "middle" : "weak");
    const tokens = marked
      .filter((one) => one[1] >= skipped && one[2] <= skipped + letters.length)
      .map(([, from, to, share]) => [from - skipped, to - skipped, share]);
    const alone = letters.length === part.length && other !== null ? differing(part, kept(other).text) : [];
    const edges = new Set([0, letters.length, ...[...tokens, ...alone].flatMap(([from, to]) => [from, to])]);
    const places = [...edges].sort((a, b) => a - b);
    const within = (from, to) => (one) => one[0] <= from && to <= one[1];
    places.slice(1).forEach((end, k) => {
      const start = places[k];
      const words = readable(letters.slice(start, end).join(""));
      const token = tokens.find(within(start, end));
      const differs = alone.some(within(start, end));
      const look = [token ? strength(token[2]) : null, differs ? "differs" : null].filter(Boolean).join(" ");
      body.append(look ? element("mark", { class: look, title: token ? `${percent(token[2])} of d_Σ` : null }, words) : words);
    });
    const after = length === null ? 0 : length - skipped - letters.length;
    return element(
      "div",
      { class: "pair-text", tabindex: "0", role: "region", "aria-label": "the text" },
      ...(skipped ? [cutNote(`${whole(skipped)} characters before …`), " "] : []),
      body,
      ...(after ? [" ", cutNote(`… ${whole(after)} characters after`)] : []),
    );
  }

  function textCard(data, row, side) {
    const text = data.texts[data.pairs["ij"[side]][row]];
    const marked = data.details[row].marked[side];
    const facts = `${whole(text.tokens)} tokens${text.truncated ? `, ${whole(text.truncated)} more were cut off by the model` : ""}`;
    const chips = marked
      .filter((one) => one[0] >= 0)
      .map((one) =>
        element(
          "li",
          null,
          element("bdi", null, readable(data.words[one[0]])),
          " ",
          element("small", null, percent(one[3])),
        ),
      );
    return element(
      "article",
      { class: `pair-card side-${"ab"[side]}` },
      element(
        "header",
        null,
        element("strong", null, `Text ${"AB"[side]}`),
        element("bdi", { class: "pair-id", dir: "auto" }, readable(text.id)),
        element("small", null, facts),
      ),
      markedText(text, marked, data.texts[data.pairs["ji"[side]][row]].text),
      chips.length ? element("ul", { class: "chips", "aria-label": "tokens that differ most" }, ...chips) : null,
    );
  }

  Object.assign(poolscope, { isOf, kindsOf, scatterFigure, scatterRows, pictureFigure, textCard });
})(window.poolscope);
