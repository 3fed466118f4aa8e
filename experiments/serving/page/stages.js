// The stages of one step as SVG: a row for each stage, a column for each block.
const LABEL = 112, WIDTH = 352, ROW = 16, BAR = 13;

// With times, a cell is filled from the left by its block's work, then by its waiting, against the longest stage of
// any block; without times, a cell says only whether the block had a part in the stage. Stages are named by the lab.
export function draw(place, { unit, blocks, stages, title, reading }) {
  const timed = unit === "ns", cell = (WIDTH - LABEL) / blocks, room = cell - Math.min(1.5, cell / 6);
  const longest = Math.max(1, ...stages.flatMap(({ work, wait }) => work.map((own, block) => own + wait[block])));
  const width = (ns) => (timed ? (room * ns) / longest : room), us = (ns) => (ns / 1000).toFixed(1);
  const rows = stages.map(({ stage, work, wait }, row) => {
    const bar = (kind, x, w) => `<rect class="${kind}" x="${x}" y="${row * ROW + 1.5}" width="${w}" height="${BAR}"/>`;
    return `<text y="${row * ROW + 12}">${stage}</text>` + work.map((own, block) => {
      const x = LABEL + block * cell, part = own !== null;
      const times = timed ? `: work ${us(own)} us, waiting ${us(wait[block])} us` : "";
      const bars = bar("none", x, room) + (part ? bar("work", x, width(own)) : "");
      const waiting = timed && wait[block] ? bar("wait", x + width(own), width(wait[block])) : "";
      return `<g><title>${stage}, block ${block}${part ? times : ": no part"}</title>${bars}${waiting}</g>`;
    }).join("");
  });
  const legend = timed ? "Blue: work; yellow: waiting after the stage." : "Blue: the block has a part in the stage.";
  const about = `role="img" aria-label="stages by blocks" viewBox="0 0 ${WIDTH} ${ROW * rows.length}"`;
  place.innerHTML = `<p></p><svg ${about}>${rows.join("")}</svg><p></p><p></p>`;
  [title, legend, reading].forEach((text, line) => { place.querySelectorAll("p")[line].textContent = text; });
}
