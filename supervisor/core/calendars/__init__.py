"""Named calendars: sets of days, the iCalendar files they come from, and due times that move off excluded days."""
