// Tables that sort.
import { button, make } from "./dom";

/** sortable makes the headers of a table buttons that sort its rows. */
export function sortable(table: HTMLTableElement): void {
	const headers = [...(table.tHead?.rows[0]?.cells ?? [])];
	headers.forEach((header, column) => {
		const sort = () => {
			const down = header.getAttribute("aria-sort") === "descending" || (!header.ariaSort && !isNumber(header));
			headers.forEach((other) => {
				other.removeAttribute("aria-sort");
			});
			header.setAttribute("aria-sort", down ? "ascending" : "descending");
			sortRows(table, column, down ? 1 : -1);
		};
		header.replaceChildren(button(header.textContent ?? "", sort, { class: "sort" }));
	});
}

function isNumber(header: HTMLElement): boolean {
	return header.classList.contains("number");
}

function sortRows(table: HTMLTableElement, column: number, direction: 1 | -1): void {
	for (const body of table.tBodies) {
		const rows = [...body.rows].map((row) => ({ row, key: keyOf(row.cells[column]) }));
		rows.sort((a, b) => compareKeys(a.key, b.key, direction));
		body.append(...rows.map(({ row }) => row));
	}
}

/** keyOf is what a cell is sorted by: its data-value, else its text. */
function keyOf(cell: HTMLTableCellElement | undefined): string {
	return cell?.dataset.value ?? cell?.querySelector("summary")?.textContent ?? cell?.textContent ?? "";
}

const isMissing = (key: string) => key.trim() === "" || key.trim() === "-";

/** compareKeys compares by number where both are, else as text with the numbers in it by size. What is missing is last either way. */
export function compareKeys(a: string, b: string, direction: 1 | -1): number {
	if (isMissing(a) || isMissing(b)) {
		return Number(isMissing(a)) - Number(isMissing(b));
	}
	const [x, y] = [Number(a), Number(b)];
	return direction * (Number.isNaN(x) || Number.isNaN(y) ? a.localeCompare(b, "en", { numeric: true }) : x - y);
}

/** callersApart emphasises the leaf of each stack. */
export function callersApart(): void {
	for (const code of document.querySelectorAll(".where summary code")) {
		const [leaf = "", ...callers] = (code.textContent ?? "").split(/(?= < )/);
		code.replaceChildren(make("strong", {}, leaf), callers.join(""));
	}
}

/** signDeltas marks changes by their sign. */
export function signDeltas(): void {
	for (const delta of document.querySelectorAll<HTMLElement>(".delta")) {
		const text = (delta.textContent ?? "").trim();
		delta.classList.toggle("more", text.startsWith("+"));
		delta.classList.toggle("less", /^[-−]\s?\d/.test(text));
	}
}
