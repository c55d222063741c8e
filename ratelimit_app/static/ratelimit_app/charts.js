// Draws the charts of a page with uPlot. Every word and moment comes from the server, in the reader's language and
// time zone; here is only geometry. A chart is an element with data-chart="name"; what it draws is in the JSON beside:
//   start, end    seconds since 1970          x, labels     where each value stands, and what that is called
//   ticks         [[x, label], ...]           stacked       whether values stand on each other
//   series        [{tone, values, dashed}]    unit          "", "%" or "ms"
//   limit         {value, label}              spans         [{start, end, label}]: hatched
//   unlabelled    when the chart below it has the same times
// Dragging over a chart looks at that span: it leads to the same page with from and to in its address.
"use strict";

(() => {
  const root = document.getElementById("rl-page");
  const data = document.getElementById("rl-charts");
  if (!root || !data || !window.uPlot) {
    return;
  }
  const language = document.documentElement.lang || "en";
  const drawn = new Map(); // name -> {chart, plot, element}
  let charts = JSON.parse(data.textContent);
  let leaving = false;

  const formats = {
    "": new Intl.NumberFormat(language, { notation: "compact", maximumFractionDigits: 1 }),
    "%": new Intl.NumberFormat(language, { style: "percent", maximumFractionDigits: 1 }),
    ms: new Intl.NumberFormat(language, { maximumFractionDigits: 2 }),
  };
  const worded = (value, unit) => {
    if (value === null || value === undefined) {
      return "–";
    }
    return formats[unit].format(unit === "%" ? value / 100 : value) + (unit === "ms" ? " ms" : "");
  };

  const colour = (name) => getComputedStyle(root).getPropertyValue(`--rl-${name}`).trim();

  const hatch = (context) => {
    const tile = document.createElement("canvas");
    const size = 7 * devicePixelRatio;
    tile.width = tile.height = size;
    const brush = tile.getContext("2d");
    brush.strokeStyle = colour("unchecked");
    brush.lineWidth = 1.6 * devicePixelRatio;
    for (const shift of [-size, 0, size]) {
      brush.moveTo(shift - 1, size + 1);
      brush.lineTo(shift + size + 1, -1);
    }
    brush.stroke();
    return context.createPattern(tile, "repeat");
  };

  const values = (chart) => {
    const all = chart.series.map((series) => series.values);
    if (!chart.stacked) {
      return [chart.x, ...all];
    }
    // The highest first, so that each is drawn over the one it stands on.
    const stacked = all.map((_, top) => chart.x.map((_, i) => all.slice(0, top + 1).reduce((sum, v) => sum + v[i], 0)));
    return [chart.x, ...stacked.reverse()];
  };

  // Charts with an hour and with a week have the same few ticks, but a telephone has room for fewer.
  const ticks = (plot, chart) => {
    const room = Math.max(1, Math.floor(plot.bbox.width / devicePixelRatio / 56));
    const every = Math.ceil(chart.ticks.length / room);
    return chart.ticks.filter((_, number) => number % every === 0);
  };

  const overlays = (plot, chart) => {
    const { ctx: context, bbox } = plot;
    const ratio = devicePixelRatio;
    context.save();
    context.font = `${11 * ratio}px ${getComputedStyle(root).fontFamily}`;
    context.fillStyle = colour("ink");
    for (const span of chart.spans || []) {
      const left = Math.max(plot.valToPos(span.start, "x", true), bbox.left);
      const right = Math.min(plot.valToPos(span.end, "x", true), bbox.left + bbox.width);
      if (right < bbox.left || left > bbox.left + bbox.width) {
        continue;
      }
      context.save();
      context.fillStyle = hatch(context);
      context.fillRect(left, bbox.top, Math.max(right - left, 3 * ratio), bbox.height);
      context.restore();
      const fits = left - bbox.left > context.measureText(span.label).width + 8 * ratio;
      context.textAlign = fits ? "right" : "left";
      context.fillText(span.label, fits ? left - 6 * ratio : right + 6 * ratio, bbox.top + 12 * ratio);
    }
    if (chart.limit) {
      const y = plot.valToPos(chart.limit.value, "y", true);
      context.strokeStyle = colour("ink");
      context.lineWidth = ratio;
      context.setLineDash([6 * ratio, 4 * ratio]);
      context.beginPath();
      context.moveTo(bbox.left, y);
      context.lineTo(bbox.left + bbox.width, y);
      context.stroke();
      context.textAlign = "left";
      context.fillText(chart.limit.label, bbox.left + 6 * ratio, y - 5 * ratio);
    }
    context.restore();
  };

  const readOut = (plot, own) => {
    const readout = own.element.parentElement.querySelector(".rl-readout");
    const { chart } = own;
    const at = plot.cursor.idx;
    if (!readout) {
      return;
    }
    own.hint ??= readout.textContent;
    if (at === null || at === undefined || plot.cursor.left < 0) {
      readout.textContent = own.hint;
      return;
    }
    const parts = chart.series.map((series) => `${series.name} ${worded(series.values[at], chart.unit)}`);
    readout.textContent = `${chart.labels[at]}: ${parts.join(", ")}`;
  };

  const lookAt = (plot, chart) => {
    const { left, width } = plot.select;
    if (width < 6 || leaving) {
      return;
    }
    leaving = true; // charts that move together would all lead there
    const moment = (position) => new Date(plot.posToVal(position, "x") * 1000).toISOString().slice(0, 16) + "Z";
    const url = new URL(location.href);
    url.searchParams.delete("range");
    url.searchParams.set("from", moment(left));
    url.searchParams.set("to", moment(Math.min(left + width, plot.over.clientWidth) + 0.5));
    if (url.searchParams.get("from") === url.searchParams.get("to")) {
      url.searchParams.set("to", new Date((plot.posToVal(left, "x") + 60) * 1000).toISOString().slice(0, 16) + "Z");
    }
    location.assign(url);
  };

  const build = (element, name) => {
    const own = { element, chart: charts[name], plot: null };
    const { chart } = own;
    const axis = { stroke: colour("quiet"), grid: { stroke: colour("hairline"), width: 1 }, ticks: { show: false } };
    const font = `11px ${getComputedStyle(root).fontFamily}`;
    const order = chart.stacked ? [...chart.series].reverse() : chart.series;
    const count = order.length;
    const fill = (tone) => {
      if (tone !== "unchecked") {
        return colour(tone);
      }
      // Under a hatched span a second hatch would only be a smear.
      return (chart.spans || []).length ? colour("unchecked-area") : (plot) => hatch(plot.ctx);
    };
    const options = {
      width: element.clientWidth,
      height: element.clientHeight,
      padding: [8, 20, 0, 0],
      legend: { show: false },
      cursor: { y: false, sync: { key: "rl" }, drag: { x: true, y: false, setScale: false }, points: { size: 6 } },
      scales: {
        x: { time: false, range: () => [own.chart.start, own.chart.end] },
        y: {
          range: (_, _low, high) => {
            const limit = own.chart.limit ? own.chart.limit.value * 1.2 : 0;
            return [0, Math.max((high || 0) * 1.08, limit, own.chart.unit ? 0.1 : 4)];
          },
        },
      },
      axes: [
        {
          ...axis,
          font,
          size: own.chart.unlabelled ? 6 : 24,
          gap: 6,
          splits: (plot) => ticks(plot, own.chart).map(([x]) => x),
          values: (plot, splits) => {
            const named = new Map(own.chart.unlabelled ? [] : own.chart.ticks);
            return splits.map((x) => named.get(x) || "");
          },
        },
        {
          ...axis,
          font,
          size: 46,
          space: 26,
          incrs: own.chart.unit ? undefined : [1, 2, 5].flatMap((n) => [...Array(13).keys()].map((e) => n * 10 ** e)).sort((a, b) => a - b),
          values: (_, splits) => splits.map((value) => worded(value, own.chart.unit)),
        },
      ],
      series: [
        {},
        ...order.map((series, number) => ({
          stroke: colour(series.tone),
          width: 1.5,
          dash: series.dashed ? [4, 4] : undefined,
          fill: chart.stacked && number === count - 1 ? colour(`${series.tone}-area`) : undefined,
          points: { show: chart.x.length === 1 },
        })),
      ],
      bands: chart.stacked
        ? order.slice(0, -1).map((series, number) => ({ series: [number + 1, number + 2], fill: fill(series.tone) }))
        : undefined,
      hooks: {
        draw: [(plot) => overlays(plot, own.chart)],
        setCursor: [(plot) => readOut(plot, own)],
        setSelect: [(plot) => lookAt(plot, own.chart)],
      },
    };
    element.textContent = "";
    own.plot = new uPlot(options, values(chart), element);
    drawn.set(name, own);
  };

  const buildAll = () => {
    drawn.forEach(({ plot }) => plot.destroy());
    drawn.clear();
    root.querySelectorAll("[data-chart]").forEach((element) => {
      if (charts[element.dataset.chart]) {
        build(element, element.dataset.chart);
      }
    });
    root.dataset.drawn = drawn.size;
  };

  document.addEventListener("rl-charts", (event) => {
    charts = event.detail;
    drawn.forEach((own, name) => {
      own.chart = charts[name];
      own.plot.setData(values(own.chart));
    });
  });

  const resize = new ResizeObserver(() => {
    drawn.forEach(({ plot, element }) => {
      plot.setSize({ width: element.clientWidth, height: element.clientHeight });
    });
  });
  root.querySelectorAll("[data-chart]").forEach((element) => resize.observe(element));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", buildAll);
  new MutationObserver(buildAll).observe(document.documentElement, { attributeFilter: ["data-theme"] });
  buildAll();
})();
