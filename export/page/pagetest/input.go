package pagetest

import (
	"context"
	"fmt"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
)

// A Box is the place of an element in the window, in CSS pixels.
type Box struct{ X, Y, Width, Height float64 }

// At is the point at the given parts of the width and the height, from 0 to 1.
func (b Box) At(x, y float64) Point { return Point{b.X + x*b.Width, b.Y + y*b.Height} }

// A Point of the window, in CSS pixels.
type Point struct{ X, Y float64 }

// Box scrolls the first element of a CSS selector into the middle of the window, and returns its
// place.
func (p *Page) Box(selector string) (box Box, err error) {
	return box, p.Evaluate(fmt.Sprintf(`(() => {
		const element = document.querySelector(%q)
		if (!element) throw new Error("there is no " + %[1]q)
		element.scrollIntoView({block: "center", inline: "center", behavior: "instant"})
		const {x: X, y: Y, width: Width, height: Height} = element.getBoundingClientRect()
		return {X, Y, Width, Height}
	})()`, selector), &box)
}

// Move moves the mouse to a point.
func (p *Page) Move(to Point) error {
	return p.act(fmt.Sprintf("move to %v", to),
		input.DispatchMouseEvent(input.MouseMoved, to.X, to.Y))
}

// ClickAt clicks a point with the left button.
func (p *Page) ClickAt(at Point) error {
	return p.act(fmt.Sprintf("click %v", at), chromedp.MouseClickXY(at.X, at.Y))
}

// Click clicks the middle of the first element of a CSS selector.
func (p *Page) Click(selector string) error {
	box, err := p.Box(selector)
	if err != nil {
		return err
	}
	return p.ClickAt(box.At(0.5, 0.5))
}

// Press presses keys one after another: text, or characters of package kb.
func (p *Page) Press(keys string) error {
	return p.act(fmt.Sprintf("press %q", keys), chromedp.KeyEvent(keys))
}

// act runs actions, and waits until the page has drawn their effects.
func (p *Page) act(what string, actions ...chromedp.Action) error {
	if err := within(p.ctx, what, chromedp.ActionFunc(func(ctx context.Context) error {
		for _, action := range actions {
			if err := action.Do(ctx); err != nil {
				return err
			}
		}
		return nil
	})); err != nil {
		return err
	}

	return p.Settle()
}
