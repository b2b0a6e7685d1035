// Replaces d3-transition in the build: d3-flame-graph animates some changes in any case, here all happen at once.
import { selection } from "d3-selection";

/** itself is a transition, its duration, its delay or its easing where there is none: what follows is done to the selection. */
function itself<T>(this: T): T {
	return this;
}

Object.assign(selection.prototype, { transition: itself, duration: itself, delay: itself, ease: itself });
