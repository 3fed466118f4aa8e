// A click on a column's head sorts by it; a second click reverses the order. Figures before texts, blanks last.
for (const head of document.querySelectorAll("th")) {
  const button = document.createElement("button");
  button.append(...head.childNodes);
  head.append(button);
  button.addEventListener("click", () => {
    const row = head.parentElement, body = row.closest("table").tBodies[0];
    const down = head.getAttribute("aria-sort") === "ascending";
    for (const other of row.children) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const at = [...row.children].indexOf(head), sign = down ? -1 : 1;
    const value = (line) => line.children[at].dataset.value ?? line.children[at].textContent.trim();
    const compare = (a, b) => {
      const [x, y] = [value(a), value(b)];
      if (x === "-" || y === "-") return (x === "-") - (y === "-");
      const [m, n] = [Number(x), Number(y)];
      if (!Number.isNaN(m) && !Number.isNaN(n)) return sign * (m - n);
      return sign * x.localeCompare(y, "en", { numeric: true });
    };
    body.append(...[...body.rows].sort(compare));
  });
}
// A link to something inside closed details opens them. Without a hash there is nothing to open.
const open = () => {
  if (!location.hash) return;
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  for (let at = target; at; at = at.parentElement) if (at.tagName === "DETAILS") at.open = true;
  target?.scrollIntoView();
};
addEventListener("hashchange", open);
open();
