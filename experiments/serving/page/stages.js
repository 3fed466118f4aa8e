// The stages of one step as SVG: a row for each stage, a column for each block.
const LABEL = 112, WIDTH = 352, ROW = 16;

// With times, a cell is filled from the left by its block's work, then by its waiting, both against the longest stage of
// any block; without times, a cell says only whether the block had a part in the stage. Stages are named by the kernel.
export function draw(place, step) {
  const timed = step.unit === "ns", cell = (WIDTH - LABEL) / step.blocks, room = cell - Math.min(1.5, cell / 6);
  const all = step.stages.flatMap(({ work, wait }) => work.map((own, block) => (own ?? 0) + (wait[block] ?? 0)));
  const longest = Math.max(1, ...all), us = (ns) => (ns / 1000).toFixed(1);
  const width = (part) => (timed ? (room * part) / longest : room);
  const rows = step.stages.map(({ stage, work, wait }, row) => {
    const bar = (kind, x, size) =>
      `<rect class="${kind}" x="${x}" y="${row * ROW + 1.5}" width="${size}" height="${ROW - 3}"/>`;
    const cells = work.map((own, block) => {
      const x = LABEL + block * cell, waited = timed && wait[block];
      const times = timed ? `: work ${us(own)} us, waiting ${us(wait[block])} us` : "";
      const bars = [bar("none", x, room), own === null ? "" : bar("work", x, width(own)),
        waited ? bar("wait", x + width(own), width(waited)) : ""].join("");
      return `<g><title>${stage}, block ${block}${own === null ? ": no part" : times}</title>${bars}</g>`;
    });
    return `<text x="0" y="${row * ROW + 12}">${stage}</text>${cells.join("")}`;
  });
  const legend = timed ? "Blue: work; yellow: waiting at the barrier after the stage." : "Blue: the block has a part in the stage.";
  place.innerHTML = `<p></p><svg role="img" viewBox="0 0 ${WIDTH} ${ROW * rows.length}">${rows.join("")}</svg><p></p><p></p>`;
  const drawing = place.querySelector("svg"), lines = place.querySelectorAll("p");
  drawing.setAttribute("aria-label", `${step.title}: ${rows.length} stages on ${step.blocks} blocks`);
  [step.title, legend, step.reading].forEach((text, line) => { lines[line].textContent = text; });
}
