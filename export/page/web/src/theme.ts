// Light, dark and paper.

/** paperWidth is the width of a chart on A4 between margins of 15 mm, in CSS pixels. */
export const paperWidth = 670;

/** onTheme calls draw when colours change, and before and after printing. */
export function onTheme(draw: (paper: boolean) => void): void {
	const root = document.documentElement;
	const print = (paper: boolean) => () => {
		root.toggleAttribute("data-paper", paper); // the style sheet's media is still the screen when beforeprint is sent
		draw(paper);
	};
	matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => draw(root.hasAttribute("data-paper")));
	addEventListener("beforeprint", print(true));
	addEventListener("afterprint", print(false));
}

/** onWidth calls act with the width of an element's content when it changes. */
export function onWidth(element: HTMLElement, act: (width: number) => void): void {
	let last = element.clientWidth;
	new ResizeObserver(() => {
		if (element.clientWidth !== last && element.clientWidth > 0) {
			last = element.clientWidth;
			act(last);
		}
	}).observe(element);
}
