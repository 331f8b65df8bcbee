import { QueryClient, QueryClientProvider } from '@tanstack/react-query'
import { StrictMode } from 'react'
import { createRoot } from 'react-dom/client'
import { App } from './app.tsx'
import { Problem } from './api.ts'
import { followAttendance } from './attendance.ts'
import { keepFocus } from './focus-keeper.ts'
import { followNetwork } from './reach.ts'
import { followAddress } from './router.ts'
import { followSettings } from './settings.ts'

followSettings()
followAttendance()
followNetwork()
followAddress()

const queries = new QueryClient({
  defaultOptions: {
    queries: {
      // The event stream keeps the pages up to date, so the queries need not be repeated.
      staleTime: Infinity,
      refetchOnWindowFocus: false,
      // Only requests without a response are retried, because a restarted console is available within seconds. A
      // rejected request would be rejected again.
      retry: (failures, error) => error instanceof Problem && error.status === 0 && failures < 5,
    },
    // With the default mode, an action that a person begins without a network would wait, and would be sent as soon as
    // there is a network again.
    mutations: { networkMode: 'always' },
  },
})

const element = document.getElementById('app')
if (element === null) throw new Error('the page has no element #app')
keepFocus(element)
createRoot(element).render(
  <StrictMode>
    <QueryClientProvider client={queries}>
      <App />
    </QueryClientProvider>
  </StrictMode>,
)
