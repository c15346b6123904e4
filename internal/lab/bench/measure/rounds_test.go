package measure

import (
	"testing"
	"time"
)

func TestOverdue(t *testing.T) {
	if Overdue(time.Time{}) || Overdue(time.Now().Add(time.Hour)) || !Overdue(time.Now().Add(-time.Second)) {
		t.Error("no time is never too late, an hour from now is not, a second ago is")
	}
	if got := Joined("A.", LeftOut(0), LeftOut(3)); got != "A. There was no time for 3 cases." {
		t.Errorf("got %q", got)
	}
}
