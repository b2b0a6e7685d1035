// The timeline without a mouse.

/** Moves are what keys do. */
export interface Moves {
	move: (rows: number) => void;
	zoom: (factor: number) => void;
	reset: () => void;
}

/** listen lets keys move the cursor and zoom while the element has the focus. */
export function listen(element: HTMLElement, moves: Moves): void {
	element.addEventListener("keydown", (event) => {
		if (event.ctrlKey || event.metaKey || event.altKey) {
			return;
		}
		const act = action(event.key, event.shiftKey ? 10 : 1, moves);
		if (act) {
			event.preventDefault();
			act();
		}
	});
}

function action(key: string, far: number, { move, zoom, reset }: Moves): (() => void) | undefined {
	switch (key) {
		case "ArrowLeft":
			return () => move(-far);
		case "ArrowRight":
			return () => move(far);
		case "PageDown":
			return () => move(-60);
		case "PageUp":
			return () => move(60);
		case "+":
		case "=":
			return () => zoom(0.5);
		case "-":
			return () => zoom(2);
		case "Home":
		case "Escape":
			return reset;
	}
	return undefined;
}
