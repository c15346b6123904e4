package measure

import "github.com/weir-project/weir/internal/lab/report"

// BarPanel collects the bars of a panel.
type BarPanel struct {
	Panel *report.Panel
	// row is the series, by its number.
	row map[string]int
}

// NewBarPanel makes a panel of bars: a row for each series, with a bar in each category.
func NewBarPanel(title string, series []report.Series, categories ...string) BarPanel {
	rows := func() [][]*float64 {
		list := make([][]*float64, len(series))
		for i := range list {
			list[i] = make([]*float64, len(categories))
		}
		return list
	}
	p := BarPanel{
		Panel: &report.Panel{Title: title, Categories: categories, Values: rows(), Low: rows(), High: rows()},
		row:   map[string]int{},
	}
	for i, one := range series {
		p.row[one.Name] = i
	}
	return p
}

// Set gives a series a value in a category.
func (p BarPanel) Set(name string, category int, value Spread, factor float64) {
	i := p.row[name]
	p.Panel.Values[i][category] = report.Number(value.Median * factor)
	if value.Min < value.Max {
		p.Panel.Low[i][category] = report.Number(value.Min * factor)
		p.Panel.High[i][category] = report.Number(value.Max * factor)
	}
}
