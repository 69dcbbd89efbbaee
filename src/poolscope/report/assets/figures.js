"use strict";
// Figures: drawn in the colours and the width of the page, downloaded as they were made.
(function (poolscope) {
  const { element, csv, download, fileName, figureRows, picture, arranged, axesOf, shortenNames, wrapped } = poolscope;
  const NARROW = 560; // below this width panels stand one under the other
  const LINE = 22; // height of a line of the legend, in pixels
  const CONFIG = { displayModeBar: false, showTips: false };
  const charts = [];

  function colours() {
    const style = getComputedStyle(document.documentElement);
    const read = (name) => style.getPropertyValue(name).trim();
    return {
      ink: read("--ink"),
      muted: read("--muted"),
      line: read("--line"),
      grid: read("--grid"),
      card: read("--card"),
      dark: read("--dark") === "1",
    };
  }

  const lighter = (part) => Math.round(Number(part) + 0.3 * (255 - Number(part)));

  // Colours were chosen for white paper. On dark ground greys change places with their opposites, and others are lighter.
  function turned(value) {
    if (Array.isArray(value)) return value.map(turned);
    if (value && typeof value === "object") return recoloured(value);
    if (typeof value !== "string") return value;
    const named = { white: "#ffffff", black: "#000000" }[value] || value;
    const full = /^#[0-9a-f]{3}$/i.test(named) ? named.replace(/[0-9a-f]/gi, "$&$&") : named;
    const hex = /^#([0-9a-f]{2})([0-9a-f]{2})([0-9a-f]{2})$/i.exec(full);
    const rgba = /^rgba?\((\d+), ?(\d+), ?(\d+)(?:, ?([\d.]+))?\)$/.exec(value);
    if (!hex && !rgba) return value;
    const parts = hex ? hex.slice(1).map((pair) => parseInt(pair, 16)) : rgba.slice(1, 4).map(Number);
    const grey = parts[0] === parts[1] && parts[1] === parts[2];
    const shown = grey ? parts.map((part) => Math.round(24 + (231 * (255 - part)) / 255)) : parts.map(lighter);
    return `rgba(${shown.join(",")},${rgba && rgba[4] ? rgba[4] : 1})`;
  }

  function recoloured(part) {
    const made = Array.isArray(part) ? [] : {};
    for (const [key, value] of Object.entries(part)) {
      if (/color$/i.test(key)) made[key] = turned(value);
      else if (key === "text" && typeof value === "string")
        made[key] = value.replace(/(color:\s*)(#[0-9a-f]{6})/gi, (_, head, colour) => head + turned(colour));
      else
        made[key] =
          value &&
          typeof value === "object" &&
          !ArrayBuffer.isView(value) &&
          !(Array.isArray(value) && typeof value[0] !== "object")
            ? recoloured(value)
            : value;
    }
    return made;
  }

  // Names of the legend that are wider than the figure, in several lines.
  function withFittingNames(data, width) {
    const letters = (width - 60) / 7;
    const long = (trace) => trace.name && trace.showlegend !== false && trace.name.length > letters;
    return data.map((trace) => (long(trace) ? { ...trace, name: wrapped(trace.name, letters) } : trace));
  }

  function legendLines(data, layout, width) {
    const named = data.filter((trace) => trace.showlegend !== false && trace.name);
    if (layout.showlegend === false || (named.length < 2 && !named.some((trace) => trace.showlegend))) return 0;
    if ((layout.legend || {}).orientation === "v") return named.length;
    let lines = 1;
    let used = 0;
    for (const trace of named) {
      const parts = trace.name.split("<br>");
      const size = 48 + 7 * Math.max(...parts.map((part) => part.length));
      if (used && used + size > width - 80) {
        lines += 1;
        used = 0;
      }
      lines += parts.length - 1;
      used += size;
    }
    return lines;
  }

  // The height of a figure of one panel: lower where it is narrower, but rows of names keep theirs.
  function soloHeight(data, layout, width) {
    const wanted = (layout.height || 420) - (layout.title ? 60 : 0);
    const narrow = width < NARROW;
    const most = shortenNames(data, layout, narrow);
    const named = data.flatMap((trace) => trace.y).filter((value) => typeof value === "string");
    if (named.length) return wanted + 14 * (most - 1) * new Set(named).size;
    const shrunk = layout.width ? wanted * Math.min(1, Math.max(0.66, width / layout.width)) : wanted;
    return narrow ? Math.min(shrunk, 360) : shrunk;
  }

  // The figure as the page shows it: without its title (that is the caption), in the width that there is.
  function dressed(figure, width, look) {
    const source = look.dark ? recoloured(figure) : figure;
    const layout = structuredClone(source.layout);
    const narrow = width < NARROW;
    const grid = arranged(source.data, layout, width, narrow);
    const data = withFittingNames(source.data, width);
    const lines = legendLines(data, layout, width);
    const titled = (layout.annotations || []).some((note) => note.yref === "paper" && note.y >= 0.9);
    const margin = { t: 10 + lines * LINE + (grid ? grid.above : titled ? 30 : 0), b: grid ? grid.below : 46 };
    const height = grid ? grid.total + margin.t + margin.b : soloHeight(source.data, layout, width) + lines * LINE;
    delete layout.title;
    Object.assign(layout, {
      autosize: false,
      width,
      height: Math.round(height),
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      font: {
        family: "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif",
        size: narrow ? 12 : 13,
        color: look.ink,
      },
      margin: { l: narrow ? 46 : 60, r: 12, ...margin },
      hoverlabel: { bgcolor: look.card, bordercolor: look.line, font: { color: look.ink } },
      colorway: layout.colorway || poolscope.colorway,
      dragmode: matchMedia("(pointer: coarse)").matches ? false : layout.dragmode || "zoom",
    });
    layout.legend = {
      ...layout.legend,
      x: 0,
      y: 1,
      xanchor: "left",
      yanchor: "top",
      xref: "container",
      yref: "container",
      bgcolor: "rgba(0,0,0,0)",
    };
    const axes = [...axesOf(layout, "x"), ...axesOf(layout, "y")];
    // Where axes share a scale, another margin makes another range, other labels, and so another margin, without end.
    const automargin = !axes.some((key) => layout[key].scaleanchor);
    for (const key of axes) {
      Object.assign(layout[key], {
        gridcolor: look.grid,
        linecolor: look.line,
        tickcolor: look.line,
        zerolinecolor: look.grid,
        automargin,
      });
      if (layout[key].title) layout[key].title = { ...layout[key].title, font: { size: layout.font.size } };
    }
    for (const note of layout.annotations || []) if (narrow && (note.font || {}).size > 14) note.font.size = 14;
    return { data, layout };
  }

  // A figure with its caption and its downloads. `rows` gives the data as columns and rows where the traces do not say it.
  function chart(host, figure, { rows = null, page, drawn = null }) {
    const plot = element("div", { class: "plot" });
    const status = element("span", { class: "status", role: "status" });
    const own = { figure, plot };
    const save = async (kind) => {
      status.textContent = "";
      const name = fileName(page, own.figure.name);
      try {
        if (kind === "csv") download(`${name}.csv`, "text/csv", csv(...(rows ? rows() : figureRows(own.figure))));
        else
          download(`${name}.${kind}`, kind === "svg" ? "image/svg+xml" : "image/png", await picture(own.figure, kind));
      } catch (error) {
        status.textContent = `The file could not be made: ${error.message}`;
      }
    };
    const buttons = ["svg", "png", "csv"].map((kind) =>
      element(
        "button",
        {
          type: "button",
          class: "quiet",
          "data-download": kind,
          "aria-label": `Download ${figure.name} as ${kind.toUpperCase()}`,
          onclick: () => save(kind),
        },
        kind.toUpperCase(),
      ),
    );
    const note = element("span", { class: "figure-note" });
    const caption = element("figcaption", null, element("strong", null, figure.name), note);
    host.append(
      element("figure", { class: "chart" }, caption, plot, element("div", { class: "downloads" }, status, ...buttons)),
    );
    own.draw = (width) => {
      const room = Math.floor(width || plot.clientWidth);
      if (!room || !window.Plotly || plot.closest("details:not([open])")) return; // what is folded is drawn when it opens
      own.width = room;
      note.textContent = own.figure.title === own.figure.name ? "" : own.figure.title;
      const shown = dressed(own.figure, room, colours());
      Plotly.react(plot, shown.data, shown.layout, CONFIG);
      if (drawn) drawn(plot);
    };
    charts.push(own);
    return own;
  }

  // What draws figures lies packed in the page, at less than half its size. Unpacked it is a script like the others: the
  // policy of the page knows it, and no other. False where the browser cannot unpack it.
  async function unpackDrawing() {
    const place = document.getElementById("pagePlotly");
    try {
      const bytes = Uint8Array.from(atob(place.textContent), (letter) => letter.charCodeAt(0));
      const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
      const script = document.createElement("script");
      script.textContent = await new Response(stream).text();
      document.head.append(script);
      place.remove();
      return true;
    } catch (error) {
      for (const one of charts)
        one.plot.textContent = "This browser is too old to draw the figures. Their numbers are in the CSV files.";
      return false;
    }
  }

  const redraw = (width) => charts.forEach((one) => one.draw(width));

  function followWidth() {
    let waiting = null;
    const changed = () => {
      clearTimeout(waiting);
      waiting = setTimeout(
        () => charts.forEach((one) => Math.abs(one.plot.clientWidth - (one.width || 0)) > 1 && one.draw()),
        120,
      );
    };
    addEventListener("resize", changed);
  }

  Object.assign(poolscope, { chart, charts, unpackDrawing, redraw, followWidth });
})(window.poolscope);
