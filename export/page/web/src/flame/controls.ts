// What is around the flame graph: the measure, search, components, the way to where it is zoomed into, details.
import { paint } from "../colors";
import { button, make } from "../dom";
import { bytes, count, share, shorten } from "../units";
import { componentsOf, type Frame, type Measure, path } from "./tree";

/** So many components have buttons; the others hold next to nothing. */
const maxComponents = 16;

/** describe is a frame in a line; an endless name is cut. */
export function describe(frame: Frame, root: Frame, measure: Measure): string {
	return `${shorten(frame.name, 300)}: ${numbers(frame, root, measure)}, component ${frame.component || "none"}`;
}

function numbers(frame: Frame, root: Frame, measure: Measure): string {
	const part = share(frame[measure], root[measure]);
	return `${bytes(frame.resident)}, ${count(frame.objects)} objects, ${part} of all`;
}

/** chip is the name of a component in its colour. */
function chip(component: string): HTMLElement {
	const element = make("span", { class: "component" }, component || "no component");
	paint(element, component);
	return element;
}

/** showDetails shows the numbers of a frame. */
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
		chip(frame.component),
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

/** showComponents makes a button for each component, which highlights its frames. */
export function showComponents(into: HTMLElement, root: Frame, measure: Measure, picked: Set<string>, changed: () => void): void {
	const components = componentsOf(root, measure);
	const whole = components.reduce((total, [, value]) => total + value, 0);
	const buttons = components.slice(0, maxComponents).map(([component, value]) => {
		const pick = () => {
			picked.has(component) ? picked.delete(component) : picked.add(component);
			toggle.setAttribute("aria-pressed", String(picked.has(component)));
			changed();
		};
		const toggle = button("", pick, { "aria-pressed": String(picked.has(component)) });
		toggle.append(chip(component), ` ${share(value, whole)}`);
		return toggle;
	});
	const more = components.length - maxComponents;
	into.replaceChildren(...buttons, ...(more > 0 ? [`and ${more} more`] : []));
}
