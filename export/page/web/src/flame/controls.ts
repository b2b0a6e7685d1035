// What is around the flame graph: the measure, search, owners, the way to where it is zoomed into, details.
import { paint } from "../colors";
import { button, make } from "../dom";
import { bytes, count, share, shorten } from "../words";
import { type Frame, type Measure, ownersOf, path } from "./tree";

/** So many owners have buttons; the others hold next to nothing. */
const mostOwners = 16;

/** describe is a frame in a line; an endless name is cut. */
export function describe(frame: Frame, root: Frame, measure: Measure): string {
	return `${shorten(frame.name, 300)}: ${numbers(frame, root, measure)}, owner ${frame.owner || "none"}`;
}

function numbers(frame: Frame, root: Frame, measure: Measure): string {
	const part = share(frame[measure], root[measure]);
	return `${bytes(frame.resident)}, ${count(frame.objects)} objects, ${part} of all`;
}

/** chip is the name of an owner in its colour. */
function chip(owner: string): HTMLElement {
	const element = make("span", { class: "owner" }, owner || "no owner");
	paint(element, owner);
	return element;
}

/** showDetails tells all about a frame. */
export function showDetails(into: HTMLElement, frame: Frame | undefined, root: Frame, measure: Measure): void {
	if (!frame) {
		into.replaceChildren(
			"Point at a frame for its numbers. Arrow keys move, Enter or a click zooms, which also shows what is too narrow; Esc shows all.",
		);
		return;
	}
	into.replaceChildren(
		make("code", {}, frame.name),
		" ",
		chip(frame.owner),
		" ",
		make("span", { class: "numbers" }, numbers(frame, root, measure)),
	);
}

/** showPath shows the way from the root to a frame, of a long one the ends. */
export function showPath(into: HTMLElement, frame: Frame, zoom: (frame: Frame) => void): void {
	const whole = path(frame);
	const shown = whole.length > 5 ? [whole[0]!, undefined, ...whole.slice(-3)] : whole;
	const items = shown.map((at) => {
		if (!at) {
			return make("li", {}, "…");
		}
		const text = at.parent ? shorten(at.name, 40) : "all";
		return make("li", {}, at === frame ? make("span", { "aria-current": "true" }, text) : button(text, () => zoom(at)));
	});
	into.replaceChildren(make("ol", {}, ...items));
	into.toggleAttribute("hidden", whole.length < 2);
}

/** showOwners makes a button for each owner, which highlights its frames. */
export function showOwners(into: HTMLElement, root: Frame, measure: Measure, picked: Set<string>, changed: () => void): void {
	const owners = ownersOf(root, measure);
	const whole = owners.reduce((total, [, value]) => total + value, 0);
	const buttons = owners.slice(0, mostOwners).map(([owner, value]) => {
		const pick = () => {
			picked.has(owner) ? picked.delete(owner) : picked.add(owner);
			toggle.setAttribute("aria-pressed", String(picked.has(owner)));
			changed();
		};
		const toggle = button("", pick, { "aria-pressed": String(picked.has(owner)) });
		toggle.append(chip(owner), ` ${share(value, whole)}`);
		return toggle;
	});
	const more = owners.length - mostOwners;
	into.replaceChildren(...buttons, ...(more > 0 ? [`and ${more} more`] : []));
}
