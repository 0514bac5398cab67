"""Days and dates of calendars."""
