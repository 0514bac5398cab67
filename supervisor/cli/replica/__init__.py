"""Commands about process trees and worker processes."""
